//! `docs/formats.md` is generated from the declarations; this test says when it is stale, and rewrites it with `HANZO_BLESS=1`.

use std::path::Path;

use hanzo_quant::{Codes, GridModifier, IntView, QuantType, SuperScale};

fn codes(view: &IntView) -> String {
    match view.codes {
        Codes::Linear { bits: 8, offset: 128 } => "8-bit signed".into(),
        Codes::Linear { bits, offset: 0 } => format!("{bits}-bit"),
        Codes::Linear { bits, offset } => format!("{bits}-bit − {offset}"),
        Codes::Table { bits, .. } => format!("{bits}-bit, table"),
        Codes::Grid(grid) => {
            let modifier = match grid.modifier {
                GridModifier::Signs { free: true } => "signs",
                GridModifier::Signs { free: false } => "even signs",
                GridModifier::Shift => "shift",
            };
            format!("{} × {}, {modifier}", 1 << grid.index_bits, grid.group)
        }
    }
}

fn scales(view: &IntView) -> String {
    let d = match view.super_scale {
        SuperScale::F16 { factor: 1.0 } => "f16".into(),
        SuperScale::F16 { factor } => format!("f16/{}", 1.0 / factor),
        SuperScale::F32 => "f32".into(),
        SuperScale::E8M0 => "E8M0".into(),
        SuperScale::Ue4m3 => "E4M3".into(),
    };
    match (view.sc_bits, view.sc_offset) {
        (0, _) => d,
        (bits, 0) => format!("{d} · {bits}-bit"),
        (bits, offset) => format!("{d} · ({bits}-bit − {offset})"),
    }
}

fn mins(view: &IntView) -> String {
    match (view.asymmetric, view.m_bits) {
        (false, _) => "".into(),
        (true, 0) => "f16".into(),
        (true, bits) => format!("f16 · {bits}-bit"),
    }
}

fn document() -> String {
    let mut text = String::from(
        "# Block formats\n\n\
         Generated from the declarations in `crates/hanzo-quant/src/formats`; \
         `HANZO_BLESS=1 cargo test -p hanzo-quant --test formats_doc` rewrites it.\n\n\
         A value is `scale · code − min`, with one scale and one min for each sub-block. *Codes* are the integers that are multiplied \
         (for a codebook: entries × elements of an entry); *scale* and *min* give the super-scale of the block and the integer \
         that it is multiplied with.\n\n\
         | Format | GGUF id | Elements | Bytes | Bits a weight | Sub-block | Codes | Scale | Min |\n\
         |---|---:|---:|---:|---:|---:|---|---|---|\n",
    );
    for &ty in QuantType::ALL {
        let (name, id, elems, bytes) = (ty.name(), ty.id(), ty.block_elems(), ty.block_bytes());
        let bits = ty.bits_per_weight();
        let view = match &ty.format().int {
            Some(v) => format!("{} | {} | {} | {}", v.sub_block, codes(v), scales(v), mins(v)),
            None => "| floating point | |".into(),
        };
        text += &format!("| {name} | {id} | {elems} | {bytes} | {bits} | {view} |\n");
    }
    text += "\n## Layouts\n\nFields in file order, little-endian.\n";
    for &ty in QuantType::ALL {
        let format = ty.format();
        text += &format!("\n### {ty}\n\n{}\n\n`{}`\n", format.doc.trim(), format.layout);
    }
    text
}

#[test]
fn formats_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let text = document();
    if std::env::var_os("HANZO_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == text, "docs/formats.md is stale: run this test with HANZO_BLESS=1 and commit it");
}
