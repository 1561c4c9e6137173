//! That the table is whole, and what the variants make of it.

use std::collections::HashSet;

use super::super::variants::{ATTENTION, QGEMM, QGEMM_TILE, QMATVEC};
use super::*;

fn variants(name: &'static str) -> Variants {
    Variants::from(|n| (n == name).then(|| "1".to_owned())).unwrap()
}

fn check(subgroup: u32, variants: Variants) -> HashSet<String> {
    let mut seen = HashSet::new();
    for (family, i) in instances_with(subgroup, variants) {
        let kernel = i.kernel.unwrap_or_else(|e| panic!("{}: {e}", i.name));
        assert!(i.name.starts_with(family.name), "{} of {}", i.name, family.name);
        assert!(seen.insert(i.name.clone()), "{} stands twice", i.name);
        assert_eq!(kernel.subgroup, subgroup, "{}", i.name);
        let named = |name: &str| i.launch.params.iter().any(|(n, _)| *n == name);
        assert!(kernel.params.iter().all(|p| named(&p.name)), "{}: a parameter has no value", i.name);
        let declared = |name: &str| kernel.params.iter().any(|p| p.name == name);
        assert!(i.launch.params.iter().all(|(n, _)| declared(n)), "{}: a value without parameter", i.name);
        assert!(i.launch.grid.iter().all(|&n| n > 0), "{}: an empty launch", i.name);
        for (name, _) in &i.launch.reads {
            assert!(kernel.buffers.iter().any(|b| b.name == *name), "{} has no `{name}`", i.name);
        }
    }
    seen
}

#[test]
fn instances_build_at_every_width_and_launch_with_what_they_declare() {
    let formats = layouts().count();
    for subgroup in [8, 16, 32, 64] {
        let seen = check(subgroup, Variants::default());
        for (family, n) in [
            ("qmatvec_", 2 * formats),
            ("qmatvec_pair_", formats),
            ("qmatvec_experts_", formats),
            ("qmatvec_pair_experts_", formats),
            ("qgemm_", formats),
            ("qgemm_experts_", formats),
            ("embed_", formats),
            ("matmul_", 6),
            ("matmul_experts_", 3),
            ("attention_decode_", 3),
            ("attention_prefill_", 4),
            ("rows_", 7),
        ] {
            let others = |name: &str| {
                FAMILIES.iter().any(|f| {
                    let f = format!("{}_", f.name);
                    f.len() > family.len() && f.starts_with(family) && name.starts_with(&f)
                })
            };
            let found = seen.iter().filter(|name| name.starts_with(family) && !others(name)).count();
            assert_eq!(found, n, "{family} in subgroups of {subgroup}");
        }
    }
}

/// The plain variants stand where the usual ones did, and say why; what they do without is gone.
#[test]
fn plain_variants_stand_in_by_name() {
    for (variable, usual, plain, gone) in [
        (QGEMM, "qgemm_q4_k", "qgemm_f32_q4_k", None),
        (QGEMM, "qgemm_experts_mxfp4", "qgemm_experts_f32_mxfp4", None),
        (QGEMM_TILE, "qgemm_q6_k", "qgemm_column_q6_k", None),
        (QMATVEC, "qmatvec_q4_k_x1", "qmatvec_column_q4_k_x1", Some("qmatvec_pair_q4_k")),
        (QMATVEC, "qmatvec_experts_q8_0", "qmatvec_experts_column_q8_0", Some("qmatvec_pair_experts_q4_k")),
        (ATTENTION, "attention_decode_f16", "attention_decode_whole_f16", Some("attention_combine")),
    ] {
        let chosen = variants(variable);
        let names = check(32, chosen);
        assert!(names.contains(plain) && !names.contains(usual), "{variable}");
        assert!(gone.is_none_or(|gone| !names.contains(gone)), "{variable}");
        let (_, i) = instances_with(32, chosen).find(|(_, i)| i.is_called(usual)).unwrap();
        assert_eq!(i.name, plain);
        assert_eq!(i.stand_in, Some(StandIn { usual: usual.to_owned(), variable }));
        let (_, i) = instances(32).find(|(_, i)| i.is_called(usual)).unwrap();
        assert_eq!((i.name.as_str(), i.stand_in), (usual, None));
        // What another variable decides stays as it is.
        let others = instances_with(32, chosen).filter(|(_, i)| i.stand_in.is_some());
        assert!(others.into_iter().all(|(_, i)| i.stand_in.unwrap().variable == variable));
    }
}

#[test]
fn every_family_has_representatives_and_every_format_is_read_by_all_contractions() {
    let all: Vec<_> = instances(32).collect();
    for family in FAMILIES {
        assert!(all.iter().any(|(f, i)| f.name == family.name && i.representative), "{}", family.name);
    }
    for layout in layouts() {
        let n = all.iter().filter(|(_, i)| i.format.is_some_and(|f| f.name == layout.format.name)).count();
        assert_eq!(n, 8, "{}", layout.format.name);
    }
}
