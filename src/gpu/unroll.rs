//! Unrolls the loops that a shader marks `// @unroll`, and names the elements of arrays marked `// @named`, because WGSL has no hint for it: arrays indexed by such a loop
//! then have constant indices and stay in registers whatever a driver's heuristics say. The file is valid WGSL as it
//! lies; only this form is understood: `for (var NAME = 0u; NAME < BOUND; NAME++) { // @unroll`, the closing brace on
//! a line of its own with the same indentation, BOUND an expression of constants of the file and numbers. A bound of 0 or
//! 1 is a condition without a branch.
//!
//! Arrays of fragments of matrix units do not stay in registers even so. `var c: array<TYPE, COUNT>; // @named` becomes
//! variables `c_0`, `c_1`, ..; once loops are unrolled every index is a number.

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
    name(&out, &constants)
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

/// `A`, `4u`, `A * B / 4u + C`, `(A / B) * (C - D)`, `min(A / 4u, 1u)`, `max(A, B)`: WGSL's precedence, left to right.
fn evaluate(text: &str, constants: &HashMap<String, u32>) -> Option<u32> {
    let text = text.trim();
    for operators in ["+-", "*/%"] {
        let mut depth = 0;
        let split = text.char_indices().rev().find(|&(_, c)| {
            depth += i32::from(c == ')') - i32::from(c == '(');
            depth == 0 && operators.contains(c)
        });
        let Some((at, operator)) = split else { continue };
        let (left, right) = (evaluate(&text[..at], constants)?, evaluate(&text[at + 1..], constants)?);
        return match operator {
            '+' => left.checked_add(right),
            '-' => left.checked_sub(right),
            '*' => left.checked_mul(right),
            '/' => left.checked_div(right),
            _ => left.checked_rem(right),
        };
    }
    let call = |name: &str| text.strip_prefix(name)?.strip_suffix(')')?.split_once(", ");
    if let Some((left, right)) = call("min(") {
        return Some(evaluate(left, constants)?.min(evaluate(right, constants)?));
    }
    if let Some((left, right)) = call("max(") {
        return Some(evaluate(left, constants)?.max(evaluate(right, constants)?));
    }
    if let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) {
        return evaluate(inner, constants);
    }
    constants.get(text).copied().or_else(|| text.strip_suffix('u')?.parse().ok())
}

/// An array that became variables, in force for lines that are indented as far as its own.
struct Named {
    name: String,
    count: u32,
    indentation: usize,
}

/// `var NAME: array<TYPE, COUNT>; // @named` becomes COUNT variables `NAME_0`, .. of type TYPE, and every `NAME[INDEX]`
/// behind it, in its block, one of those.
fn name(text: &str, constants: &HashMap<String, u32>) -> Result<String, String> {
    let mut all: Vec<Named> = Vec::new();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let code = line.trim_start();
        let indentation = line.len() - code.len();
        if !code.is_empty() {
            all.retain(|named| named.indentation <= indentation);
        }
        if let Some(declaration) = code.strip_suffix(" // @named") {
            let (name, kind, count) = array(declaration).ok_or_else(|| format!("cannot read {declaration:?}"))?;
            let count = evaluate(count, constants).ok_or_else(|| format!("cannot evaluate {count:?}"))?;
            for index in 0..count {
                out.push_str(&format!("{}var {name}_{index} = {kind}();\n", &line[..indentation]));
            }
            all.push(Named { name: name.to_owned(), count, indentation });
            continue;
        }
        let mut line = line.to_owned();
        for named in &all {
            line = elements(&line, named, constants)?;
        }
        out.push_str(&line);
        out.push('\n');
    }
    Ok(out)
}

/// Name, type and count of `var NAME: array<TYPE, COUNT>;`.
fn array(declaration: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = declaration.strip_prefix("var ")?.split_once(": array<")?;
    let (kind, count) = rest.strip_suffix(">;")?.rsplit_once(", ")?;
    Some((name, kind, count))
}

/// Every `NAME[INDEX]` of a line as the variable that it is.
fn elements(line: &str, named: &Named, constants: &HashMap<String, u32>) -> Result<String, String> {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    let head = format!("{}[", named.name);
    while let Some(at) = rest.find(&head) {
        out.push_str(&rest[..at]);
        let behind = &rest[at + head.len()..];
        if out.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.') {
            out.push_str(&head);
            rest = behind;
            continue;
        }
        let (index, after) = behind.split_once(']').ok_or_else(|| format!("{line:?} has no closing bracket"))?;
        let index = evaluate(index, constants).filter(|&i| i < named.count);
        let index = index.ok_or_else(|| format!("{line:?} needs an index that is a number below {}", named.count))?;
        out.push_str(&format!("{}_{index}", named.name));
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
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
    fn elements_of_arrays_become_variables_within_their_block() {
        let text = "const N: u32 = 2u;\n{\n    var c: array<T<f32, C>, N * N>; // @named\n    for (var i = 0u; i < N; i++) { // @unroll\n        c[i * N + 1u] = ac[i] + s.c[i] + c[0u];\n    }\n}\nc[i] = 0;\n";
        let out = unroll(text).unwrap();
        for line in [
            "    var c_3 = T<f32, C>();\n",
            "c_1 = ac[0u] + s.c[0u] + c_0;",
            "c_3 = ac[1u] + s.c[1u] + c_0;",
            "\nc[i] = 0;",
        ] {
            assert!(out.contains(line), "{line}: {out}");
        }
        let beyond = "    var c: array<T, 2u>; // @named\n    c[2u] = 1;\n";
        assert!(unroll(beyond).unwrap_err().contains("below 2"));
        assert!(unroll("    var c: array<T, 2u>; // @named\n    c[i] = 1;\n").unwrap_err().contains("number"));
        assert_eq!(unroll("    var c: array<T, 1u - 1u>; // @named\n").unwrap(), "");
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert!(unroll("for (var i = 0u; i < N; i++) { // @unroll\n}\n").unwrap_err().contains("\"N\""));
        assert!(unroll("for (var i = 1u; i < 4u; i++) { // @unroll\n}\n").unwrap_err().contains("cannot read"));
        assert!(unroll("for (var i = 0u; i < 4u; i++) { // @unroll\n").unwrap_err().contains("no end"));
    }
}
