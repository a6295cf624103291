//! Unrolls the loops that a shader marks `// @unroll`, because WGSL has no hint for it: arrays indexed by such a loop
//! then have constant indices and stay in registers whatever a driver's heuristics say. The file is valid WGSL as it
//! lies; only this form is understood: `for (var NAME = 0u; NAME < BOUND; NAME++) { // @unroll`, the closing brace on
//! a line of its own with the same indentation, BOUND a product or quotient of constants of the file and numbers. A bound of 0 or 1 is a condition without a branch.

use std::collections::HashMap;

/// The text with every marked loop unrolled, or what could not be read.
pub(super) fn unroll(text: &str) -> Result<String, String> {
    let mut constants = HashMap::new();
    for line in text.lines() {
        let Some((name, value)) = line.strip_prefix("const ").and_then(|l| l.split_once(": u32 = ")) else { continue };
        let value = value.split(';').next().unwrap_or_default();
        // What is not understood, like max(..), is simply not known here.
        if let Some(value) = evaluate(value, &constants) {
            constants.insert(name.to_owned(), value);
        }
    }
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::with_capacity(text.len() * 2);
    expand(&lines, &constants, &mut out)?;
    Ok(out)
}

fn expand(lines: &[&str], constants: &HashMap<String, u32>, out: &mut String) -> Result<(), String> {
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if !line.ends_with("// @unroll") {
            out.push_str(line);
            out.push('\n');
            at += 1;
            continue;
        }
        let code = line.trim_start();
        let indentation = &line[..line.len() - code.len()];
        let (name, bound) = head(code).ok_or_else(|| format!("cannot read {code:?}"))?;
        let count = evaluate(bound, constants).ok_or_else(|| format!("cannot evaluate {bound:?}"))?;
        let closing = format!("{indentation}}}");
        let length = lines[at..].iter().position(|l| *l == closing).ok_or_else(|| format!("{code:?} has no end"))?;
        let body = &lines[at + 1..at + length];
        for step in 0..count {
            let replaced: Vec<String> = body.iter().map(|l| replace(l, name, &format!("{step}u"))).collect();
            let replaced: Vec<&str> = replaced.iter().map(String::as_str).collect();
            out.push_str(indentation);
            out.push_str("{\n");
            expand(&replaced, constants, out)?;
            out.push_str(&closing);
            out.push('\n');
        }
        at += length + 1;
    }
    Ok(())
}

/// Name and bound of a loop's head.
fn head(code: &str) -> Option<(&str, &str)> {
    let rest = code.strip_prefix("for (var ")?;
    let (name, rest) = rest.split_once(" = 0u; ")?;
    let (bound, rest) = rest.strip_prefix(name)?.strip_prefix(" < ")?.split_once("; ")?;
    rest.strip_prefix(name)?.starts_with("++) {").then_some((name, bound))
}

/// `A`, `4u`, `A * B / 4u`, `(A / B) * (C / D)`, `min(A / 4u, 1u)`: factors from left to right.
fn evaluate(text: &str, constants: &HashMap<String, u32>) -> Option<u32> {
    let text = text.trim();
    let mut depth = 0;
    let split = text.char_indices().rev().find(|&(_, c)| {
        depth += i32::from(c == ')') - i32::from(c == '(');
        depth == 0 && (c == '*' || c == '/')
    });
    if let Some((at, operator)) = split {
        let (left, right) = (evaluate(&text[..at], constants)?, evaluate(&text[at + 1..], constants)?);
        return if operator == '*' { left.checked_mul(right) } else { left.checked_div(right) };
    }
    if let Some((left, right)) = text.strip_prefix("min(").and_then(|t| t.strip_suffix(')')?.split_once(", ")) {
        return Some(evaluate(left, constants)?.min(evaluate(right, constants)?));
    }
    if let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) {
        return evaluate(inner, constants);
    }
    constants.get(text).copied().or_else(|| text.strip_suffix('u')?.parse().ok())
}

/// Every whole word `name` replaced.
fn replace(line: &str, name: &str, by: &str) -> String {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(name) {
        let before = rest[..at].chars().next_back();
        let after = rest[at + name.len()..].chars().next();
        // A word before a dot is a variable; one after it is a member.
        let whole = !before.is_some_and(|c| word(c) || c == '.') && !after.is_some_and(word);
        out.push_str(&rest[..at]);
        out.push_str(if whole { by } else { name });
        rest = &rest[at + name.len()..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_loops_become_blocks_with_numbers() {
        let text = "const A: u32 = 8u;\nconst B: u32 = A / 4u;\nfor (var i = 0u; i < B; i++) { // @unroll\n    for (var j = 0u; j < 2u; j++) { // @unroll\n        x[i].i += ij[j];\n    }\n}\n";
        let out = unroll(text).unwrap();
        assert!(!out.contains("for"), "{out}");
        assert!(out.contains("x[1u].i += ij[0u];"), "{out}");
        assert_eq!(out.matches("+=").count(), 4);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert!(unroll("for (var i = 0u; i < N; i++) { // @unroll\n}\n").unwrap_err().contains("\"N\""));
        assert!(unroll("for (var i = 1u; i < 4u; i++) { // @unroll\n}\n").unwrap_err().contains("cannot read"));
        assert!(unroll("for (var i = 0u; i < 4u; i++) { // @unroll\n").unwrap_err().contains("no end"));
    }
}
