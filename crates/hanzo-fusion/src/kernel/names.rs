//! Which names a kernel and what it declares may have, so that they mean the same in every target's text.
//!
//! Printers number what has no name: values `v0`, loop indices `i0`, registers `r0`, fragments `f0`; what their preludes define begins with `hz`
//! or `HZ`. Declared names stand beside these as they are, so they must be none of them, and no word of C++, of its GPU dialects, or of what the
//! preludes' macros expand to.

use super::ir::Kernel;

/// Words of C++17 that begin with a lower-case letter, alternative tokens included.
const CPP: &[&str] = &[
    "alignas",
    "alignof",
    "and",
    "and_eq",
    "asm",
    "auto",
    "bitand",
    "bitor",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "char16_t",
    "char32_t",
    "class",
    "compl",
    "const",
    "const_cast",
    "constexpr",
    "continue",
    "decltype",
    "default",
    "delete",
    "do",
    "double",
    "dynamic_cast",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "final",
    "float",
    "for",
    "friend",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "main",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "not_eq",
    "nullptr",
    "operator",
    "or",
    "or_eq",
    "override",
    "private",
    "protected",
    "public",
    "register",
    "reinterpret_cast",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "static_assert",
    "static_cast",
    "std",
    "struct",
    "switch",
    "template",
    "this",
    "thread_local",
    "throw",
    "true",
    "try",
    "typedef",
    "typeid",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "wchar_t",
    "while",
    "xor",
    "xor_eq",
];

/// Words of the dialects, types that the printers write, what the preludes' macros expand to, and macros that compilers may define.
const DIALECTS: &[&str] = &[
    "constant",
    "device",
    "global",
    "half",
    "kernel",
    "linux",
    "memory_order_relaxed",
    "mem_device",
    "mem_flags",
    "mem_threadgroup",
    "metal",
    "shared",
    "thread",
    "threadgroup",
    "threadgroup_barrier",
    "uchar",
    "uint",
    "ulong",
    "unix",
    "ushort",
    "vertex",
    "fragment",
];

/// Vectors, of 2 to 4.
const VECTORS: &[&str] =
    &["bool", "char", "double", "float", "half", "int", "long", "short", "uchar", "uint", "ulong", "ushort"];

/// Why `name` cannot be the kernel's, a buffer's, a parameter's, a table's or workgroup memory's.
pub fn fault(name: &str) -> Option<&'static str> {
    let mut chars = name.chars();
    let head = chars.next().is_some_and(|c| c.is_ascii_lowercase());
    if !head || !chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
        return Some("is not a lower-case C identifier");
    }
    let numbered = |kinds: &[char]| {
        let number = name.strip_prefix(kinds).unwrap_or_default();
        !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
    };
    if numbered(&['v', 'i', 'r', 'f']) || name.starts_with("hz") {
        return Some("is a name of the printers'");
    }
    if name.contains("__") {
        return Some("has two underscores in a row, which C++ keeps for itself");
    }
    let vector = name.strip_suffix(['2', '3', '4']).is_some_and(|word| VECTORS.contains(&word));
    let atomic = name.starts_with("atomic_fetch_");
    if vector || atomic || CPP.contains(&name) || DIALECTS.contains(&name) {
        return Some("is a word of a target's language");
    }
    None
}

/// Names that printers make of the kernel's: of its tables and of its parameters together, which stand outside of it.
pub fn derived(kernel: &Kernel) -> impl Iterator<Item = String> + '_ {
    let tables = kernel.tables.iter().map(|t| table(kernel, &t.name));
    tables.chain([params(kernel)])
}

/// A table's name, beside other kernels' tables.
pub fn table(kernel: &Kernel, name: &str) -> String {
    format!("{}_{name}", kernel.name)
}

/// The name of the parameters as one type.
pub fn params(kernel: &Kernel) -> String {
    format!("{}_params", kernel.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::emit::c;
    use crate::kernel::{Builder, Dialect, KernelError};

    const DIALECTS: [Dialect; 3] = [Dialect::Cuda, Dialect::Hip, Dialect::Metal];

    /// Lower-case identifiers of a line, without those that the preludes define.
    fn words(line: &str) -> impl Iterator<Item = &str> {
        line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|w| {
                w.starts_with(|c: char| c.is_ascii_lowercase())
                    && !w.contains(|c: char| c.is_ascii_uppercase())
            })
            .filter(|w| !w.starts_with("hz"))
    }

    #[test]
    fn what_macros_expand_to_in_a_kernel_is_no_name() {
        let mut seen = 0;
        for text in DIALECTS.iter().flat_map(|&d| [c::prelude(d), c::matrix_prelude(d)]) {
            for line in text.lines().filter_map(|line| line.strip_prefix("#define ")) {
                let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
                // Attributes and declarations; their words stand where no name of the kernel's is seen.
                let outside = ["HZ_FN", "HZ_KERNEL", "HZ_TABLE", "HZ_SHARED", "HZ_UNROLL"];
                if outside.iter().any(|o| name.starts_with(o)) {
                    continue;
                }
                let (head, body) = match line.split_once(") ") {
                    Some((head, body)) if name.contains('(') => (head, body),
                    _ => (name, rest),
                };
                let parameters: Vec<_> = words(head.split_once('(').map_or("", |h| h.1)).collect();
                // Operations that are pasted into the name of a function.
                let pasted = if body.starts_with("hz_atomic(") { &["add", "min", "max"][..] } else { &[] };
                for word in words(body).filter(|w| !parameters.contains(w) && !pasted.contains(w)) {
                    // A member of what cannot be hidden.
                    if body.contains(&format!(".{word}")) {
                        continue;
                    }
                    assert!(fault(word).is_some(), "`{word}` of `{line}`");
                    seen += 1;
                }
            }
        }
        assert!(seen > 5, "{seen}");
    }

    #[test]
    fn printers_names_and_declared_ones_are_apart() {
        for name in [
            "v0",
            "v12",
            "i3",
            "r0",
            "f1",
            "hz_params",
            "hz",
            "int",
            "uint",
            "float4",
            "half",
            "xor",
            "a__b",
            "X",
            "1a",
            "",
        ] {
            assert!(fault(name).is_some(), "{name}");
        }
        for name in
            ["v", "i", "r", "f", "v1x", "x1", "vi1", "values", "cos", "sin", "exp", "out", "tile", "i_1"]
        {
            assert!(fault(name).is_none(), "{name}");
        }
        let with = |kernel: &str, buffer: &str, table: Option<&str>| -> Result<String, KernelError> {
            let k = Builder::new(kernel, "A probe.", 64, 32);
            let (x, y) = (k.input::<u32>(buffer), k.output::<u32>("y"));
            let mut v = x.at(k.local_id());
            if let Some(table) = table {
                v = v + k.table(table, vec![1, 2]).at(0);
            }
            y.set(k.local_id(), v);
            Ok(c::source(&k.finish()?, Dialect::Metal))
        };
        let refused = |r: Result<String, KernelError>| r.err().map(|e| e.reason).unwrap_or_default();
        assert!(refused(with("probe", "v1", None)).contains("`v1` is a name of the printers'"));
        assert!(refused(with("probe", "device", None)).contains("a word of a target's language"));
        assert!(refused(with("i7", "x", None)).contains("`i7`"));
        // A buffer would hide the table that the text means.
        assert!(refused(with("probe", "probe_t", Some("t"))).contains("`probe_t` is declared twice"));
        assert!(refused(with("probe", "probe_params", None)).contains("`probe_params` is declared twice"));
        assert!(with("probe", "v", Some("t")).is_ok_and(|text| text.contains("probe_t[2]")));
    }
}
