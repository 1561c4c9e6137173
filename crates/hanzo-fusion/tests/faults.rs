//! What the verifier refuses and the interpreter reports: each fault that a device would only show at times.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use hanzo_fusion::kernel::interpret::{BufferData, run};
use hanzo_fusion::kernel::opt::optimize;
use hanzo_fusion::kernel::{Builder, Combine, Kernel};

fn build(body: impl FnOnce(&Builder)) -> Result<Kernel, String> {
    let k = Builder::new("probe", "A probe.", 64, 32);
    body(&k);
    k.finish().map_err(|e| e.to_string())
}

/// Runs over two workgroups with a buffer `a` of 8 defined words and one of 256 undefined.
fn fault(body: impl FnOnce(&Builder)) -> String {
    let kernel = build(body).unwrap();
    let buffers = || vec![BufferData::of(0..8), BufferData::empty(256)];
    let plain = run(&kernel, [2, 1, 1], &mut buffers(), &[]).unwrap_err().to_string();
    // What the optimizer leaves faults in the same way, unless it could drop the instruction as useless.
    if let Err(optimized) = run(&optimize(&kernel), [2, 1, 1], &mut buffers(), &[]) {
        assert_eq!(plain, optimized.to_string());
    }
    plain
}

#[test]
fn barriers_and_subgroups_are_met_by_all() {
    let e = build(|k| k.when(k.local_id().lt(3), || k.barrier())).unwrap_err();
    assert!(
        e.contains("a barrier that not all of the workgroup may reach") && e.contains("faults.rs:"),
        "{e}"
    );
    let e = build(|k| k.for_range(0, k.lane(), |_| k.barrier())).unwrap_err();
    assert!(e.contains("a barrier"), "{e}");
    let e = build(|k| {
        // A register that differs is no safer than the value it holds.
        let r = k.reg::<u32>(0);
        k.for_range(0, 3, |_| {
            k.when(r.get().eq(2), || k.barrier());
            r.set(k.local_id());
        });
    })
    .unwrap_err();
    assert!(e.contains("a barrier"), "{e}");
    let e = build(|k| {
        k.when(k.lane().lt(3), || {
            k.lane().subgroup(Combine::Add);
        });
    })
    .unwrap_err();
    assert!(e.contains("a subgroup operation that not all of the subgroup may reach"), "{e}");
    build(|k| {
        k.when(k.subgroup_id().eq(0), || {
            k.lane().subgroup(Combine::Add);
        });
        k.for_range(0, k.workgroup_id(0), |_| k.barrier());
    })
    .unwrap();
}

#[test]
fn types_and_declarations_are_checked() {
    let e = build(|k| k.input::<u32>("a").set(0, 1)).unwrap_err();
    assert!(e.contains("declared as input"), "{e}");
    let e = build(|k| {
        k.output::<u32>("a").at(0);
    })
    .unwrap_err();
    assert!(e.contains("declared as output"), "{e}");
    let e = build(|k| {
        k.input::<u32>("a");
        k.input::<f32>("a");
    })
    .unwrap_err();
    assert!(e.contains("declared twice"), "{e}");
    let e = build(|k| {
        k.input::<u32>("2a");
    })
    .unwrap_err();
    assert!(e.contains("identifier"), "{e}");
    let e = build(|k| {
        k.shared::<f32>("much", 9000);
    })
    .unwrap_err();
    assert!(e.contains("36000 bytes of workgroup memory"), "{e}");
    let k = Builder::new("odd", "", 48, 32);
    assert!(k.finish().unwrap_err().to_string().contains("not a multiple"));
    // A value escapes from its block by way of Rust.
    let e = build(|k| {
        let mut inner = None;
        k.for_range(0, 2, |i| inner = Some(i + 1));
        k.output::<u32>("a").set(0, inner.unwrap());
    })
    .unwrap_err();
    assert!(e.contains("outside of the block"), "{e}");
}

#[test]
fn stray_and_undefined_accesses_are_reported() {
    let e = fault(|k| {
        let (a, b) = (k.input::<u32>("a"), k.output::<u32>("b"));
        b.set(k.local_id(), a.at(k.local_id()));
    });
    assert!(
        e.contains("invocation 8") && e.contains("`a`: element 8 of 8") && e.contains("faults.rs"),
        "{e}"
    );
    let e = fault(|k| {
        let (_, b) = (k.input::<u32>("a"), k.output::<u32>("b"));
        b.set(k.local_id() + 250, k.local_id());
    });
    assert!(e.contains("`b`: element 256 of 256"), "{e}");
    let e = fault(|k| {
        let (_, b, s) = (k.input::<u32>("a"), k.output::<u32>("b"), k.shared::<u32>("s", 64));
        b.set(k.local_id(), s.at(k.local_id()));
    });
    assert!(e.contains("`s`: element 0 is read, but was never written"), "{e}");
}

#[test]
fn races_are_reported() {
    let e = fault(|k| {
        let (_, b) = (k.input::<u32>("a"), k.output::<u32>("b"));
        b.set(k.workgroup_id(0), k.local_id());
    });
    assert!(e.contains("invocation 1: `b`: element 0 races with invocation 0"), "{e}");
    let e = fault(|k| {
        let (_, b, s) = (k.input::<u32>("a"), k.output::<u32>("b"), k.shared::<u32>("s", 64));
        s.set(k.local_id(), k.local_id());
        // No barrier: the neighbour may not have written yet.
        b.set(k.workgroup_id(0) * 64 + k.local_id(), s.at(63 - k.local_id()));
    });
    assert!(e.contains("`s`: element 63 races with invocation 63"), "{e}");
    let e = fault(|k| {
        let (_, b) = (k.input::<u32>("a"), k.output::<u32>("b"));
        b.set(k.local_id(), 1);
    });
    assert!(e.contains("races with invocation 0 of another workgroup"), "{e}");
    // The same with a barrier, in its own part of the buffer, is no fault.
    let kernel = build(|k| {
        let (_, b, s) = (k.input::<u32>("a"), k.output::<u32>("b"), k.shared::<u32>("s", 64));
        s.set(k.local_id(), k.local_id());
        k.barrier();
        b.set(k.workgroup_id(0) * 64 + k.local_id(), s.at(63 - k.local_id()));
    })
    .unwrap();
    let mut buffers = vec![BufferData::of(0..8), BufferData::empty(128)];
    run(&kernel, [2, 1, 1], &mut buffers, &[]).unwrap();
    assert_eq!(buffers[1].u32s().unwrap(), (0..128).map(|i| 63 - i % 64).collect::<Vec<_>>());
}

#[test]
fn arithmetic_that_targets_leave_undefined_is_reported() {
    let by = |f: fn(&Builder)| {
        fault(|k| {
            k.input::<u32>("a");
            k.output::<u32>("b");
            f(k);
        })
    };
    let e = by(|k| {
        let _ = k.local_id() / (k.local_id() - 5);
    });
    assert!(e.contains("invocation 5: division by zero"), "{e}");
    let e = by(|k| {
        let _ = k.local_id() << k.local_id();
    });
    assert!(e.contains("invocation 32: shift by 32"), "{e}");
    let e = by(|k| {
        (k.local_id().f32() * 1e9).i32();
    });
    assert!(e.contains("3000000000 does not fit i32"), "{e}");
    let e = by(|k| {
        k.lane().shuffle(k.lane() + 1);
    });
    assert!(e.contains("lane 32 of 32"), "{e}");
    let e = by(|k| {
        k.for_step(0, 4, k.local_id() & 1, |_| {});
    });
    assert!(e.contains("step 0"), "{e}");
}

#[test]
fn the_optimizer_unrolls_folds_and_drops() {
    let kernel = build(|k| {
        let b = k.output::<u32>("b");
        let sum = k.reg::<u32>(0);
        k.for_unrolled(0, 4, |i| {
            let unused = i * 17;
            let _ = unused + 1;
            sum.set(sum.get() + (i * 8 + 3) / 4);
        });
        b.set(k.workgroup_id(0) * 64 + k.local_id(), sum.get() + k.local_id() % 16 * 4);
    })
    .unwrap();
    let optimized = optimize(&kernel);
    let text = optimized.to_string();
    assert!(!text.contains("for"), "{text}");
    assert!(!text.contains("Rem") && !text.contains("Mul") && !text.contains("Div"), "{text}");
    let mut out = [vec![BufferData::empty(128)], vec![BufferData::empty(128)]];
    run(&kernel, [2, 1, 1], &mut out[0], &[]).unwrap();
    run(&optimized, [2, 1, 1], &mut out[1], &[]).unwrap();
    assert_eq!(out[0], out[1]);
    // 0 + 2 + 4 + 6 of the loop: (3 / 4, 11 / 4, 19 / 4, 27 / 4).
    assert_eq!(out[0][0].words[17], Some(12 + 4));
}
