//! The kernels as tools get them, and what to say where a tool is missing.

#![allow(dead_code)]

use hanzo_fusion::kernel::emit::c;
use hanzo_fusion::kernel::ir::{Block, Op};
use hanzo_fusion::kernel::opt::optimize;
use hanzo_fusion::kernel::{Dialect, Kernel};
use hanzo_fusion::kernels::registry;

/// Every registered kernel for subgroups of that many lanes, optimized, under its instance's name.
pub(crate) fn registered(subgroup: u32) -> Vec<Kernel> {
    let named = registry::instances(subgroup).map(|(_, instance)| {
        let mut kernel = optimize(&instance.kernel.unwrap_or_else(|e| panic!("{e}")));
        kernel.name = instance.name;
        kernel
    });
    named.collect()
}

/// One source of all of `kernels`, which have one subgroup width.
pub(crate) fn source(kernels: &[Kernel], dialect: Dialect) -> String {
    let subgroup = kernels[0].subgroup;
    let mut text = format!("#define HZ_SUBGROUP {subgroup}\n{}", c::prelude(dialect));
    if kernels.iter().any(|kernel| !kernel.fragments.is_empty()) {
        text.push_str(c::matrix_prelude(dialect));
    }
    for kernel in kernels {
        assert_eq!(kernel.subgroup, subgroup, "one source, one width");
        text.push_str(&c::definition(kernel, dialect));
    }
    text
}

/// Whether a packed dot product stands in a loop of the kernel.
pub(crate) fn dots_in_a_loop(kernel: &Kernel) -> bool {
    fn walk(block: &Block, inside: bool) -> bool {
        block.0.iter().any(|inst| {
            let inside = inside || matches!(inst.op, Op::For { .. });
            (inside && matches!(inst.op, Op::Dot4(..))) || inst.op.blocks().any(|b| walk(b, inside))
        })
    }
    walk(&kernel.body, false)
}

/// Says that `what` is missing and its checks with it; fails where `HANZO_REQUIRE=all` asks for everything.
pub(crate) fn missing(what: &str) {
    let required = std::env::var("HANZO_REQUIRE").is_ok_and(|v| v == "all");
    assert!(!required, "HANZO_REQUIRE=all, but {what}");
    println!("skipped: {what}");
}
