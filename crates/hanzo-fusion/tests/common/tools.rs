//! The kernels as tools get them, and what to say where a tool is missing.

#![allow(dead_code)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hanzo_fusion::kernel::emit::c;
use hanzo_fusion::kernel::ir::{Block, Op};
use hanzo_fusion::kernel::opt::optimize;
use hanzo_fusion::kernel::{Dialect, Kernel};
use hanzo_fusion::kernels::registry;

/// Every registered kernel for subgroups of that many lanes that stands for others, optimized, under its instance's name.
pub(crate) fn registered(subgroup: u32) -> Vec<Kernel> {
    let named = registry::instances(subgroup).filter(|(_, i)| i.representative).map(|(_, instance)| {
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

/// `f` of every item, in the items' order; as many at a time as the machine has cores.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(items.len()) {
            scope.spawn(|| {
                let take = || next.fetch_add(1, Ordering::Relaxed);
                while let Some((item, result)) =
                    Some(take()).and_then(|at| items.get(at).zip(results.get(at)))
                {
                    *result.lock().unwrap() = Some(f(item));
                }
            });
        }
    });
    results.into_iter().map(|r| r.into_inner().unwrap().unwrap()).collect()
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
