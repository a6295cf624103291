//! fused_store - part of the fused kernels: a piece of the reduction has a result of its own, which reduce_partials adds up.
//! Computes   partial[piece, row, 4c..4c+3] = value
//! Bindings   4 partial read_write vec4 Real [pieces, partial_rows, partial_stride4]
//! Spec       -
//! Grid       -
//! Order      one writer for each entry: repeatable
//! Twin       -
//! Reference  -
@group(0) @binding(4) var<storage, read_write> partial: array<Vec>;

fn put(piece: u32, row: u32, c: u32, value: Vec) {
    partial[(piece * p.partial_rows + row) * p.partial_stride4 + c] = value;
}
