//! Counts against counts by hand.

use super::*;
use crate::kernel::{Builder, Combine, Dot, Elem, Frag};
use crate::kernels::registry;

/// `y[i] = 2·x[i] + Σ_{j < n} x[j]`, 64 invocations.
fn probe() -> Kernel {
    let k = Builder::new("probe", "A probe.", 64, 32);
    let (x, y, s) = (k.input::<f32>("x"), k.output::<f32>("y"), k.shared::<f32>("s", 64));
    let n = k.param::<u32>("n");
    let i = k.workgroup_id(0) * 64 + k.local_id();
    let sum = k.reg::<f32>(0.0);
    k.for_range(0, n, |j| sum.set(sum.get() + x.at(j)));
    s.set(k.local_id(), sum.get());
    k.barrier();
    y.set(i, x.at(i).fma(2.0, s.at(k.local_id())));
    k.finish().unwrap()
}

#[test]
fn a_small_kernel_counts_as_by_hand() {
    let c = count(&probe(), [10, 1, 1], &[100], &[]);
    assert!(c.exact);
    let invocations = 640u64;
    // 100 loads in the loop and one after it; the loop touches 100 floats, the rest all 640.
    assert_eq!(c.requested, [4 * 101 * invocations, 4 * invocations]);
    assert_eq!(c.extent, [Some(4 * 640), Some(4 * 640)]);
    assert_eq!(c.dram_bytes(), 8 * 640);
    assert_eq!(c.shared_bytes, 8 * invocations);
    assert_eq!(c.flops, (100 + 2) * invocations);
    // workgroup · 64 + id.
    assert_eq!(c.integer_ops, 2 * invocations);
    assert_eq!((c.barriers, c.int8_ops, c.matrix_f16_ops, c.matrix_i8_ops), (1, 0, 0, 0));
}

#[test]
fn what_is_not_known_is_said_or_given() {
    let k = Builder::new("probe", "A probe.", 32, 32);
    let (len, y) = (k.input::<u32>("len"), k.output::<i32>("y"));
    let n = len.at(k.workgroup_id(0));
    let sum = k.reg::<i32>(0);
    k.for_range(0, n, |j| sum.set(k.dot4(Dot::SignedSigned, j, j, sum.get())));
    let all = sum.get().subgroup(Combine::Add);
    k.when(k.lane().eq(0), || y.set(k.workgroup_id(0), all));
    let kernel = k.finish().unwrap();
    let c = count(&kernel, [3, 1, 1], &[], &[]);
    assert!(!c.exact);
    assert_eq!(c.int8_ops, 8 * 32 * 3);
    let c = count(&kernel, [3, 1, 1], &[], &[("len", 50)]);
    assert!(c.exact);
    assert_eq!(c.int8_ops, 50 * 8 * 32 * 3);
    // One lane writes; a butterfly of 5 shuffles and 5 sums, and one comparison.
    assert_eq!(c.requested[1], 4 * 3);
    assert_eq!(c.integer_ops, (10 + 1) * 32 * 3);
}

#[test]
fn a_fragment_product_counts_once_for_its_subgroup() {
    let k = Builder::new("probe", "A probe.", 64, 32);
    let (a, c) = (k.input_small("a", Elem::U8), k.output::<i32>("c"));
    let (x, y, acc) = (k.tile(Frag::A, Elem::U8), k.tile(Frag::B, Elem::U8), k.tile(Frag::Acc, Elem::I32));
    acc.zero();
    x.load(a, 0, 16);
    y.load(a, 0, 16);
    acc.mul_add(x, y);
    acc.store(c, k.subgroup_id() * 256, 16);
    let kernel = k.finish().unwrap();
    let n = count(&kernel, [1, 1, 1], &[], &[]);
    assert_eq!(n.matrix_i8_ops, 2 * 2 * 16 * 16 * 16);
    assert_eq!(n.requested, [2 * 2 * 256, 2 * 256 * 4]);
}

#[test]
fn a_matvec_reads_its_weights_once_and_is_bound_by_them() {
    let instances = registry::instances(32).map(|(_, i)| i);
    let i = instances.into_iter().find(|i| i.name == "qmatvec_q4_k_x1").unwrap();
    let kernel = crate::kernel::opt::optimize(&i.kernel.unwrap());
    let c = count(&kernel, i.launch.grid, &i.launch.bits(&kernel), &i.launch.reads);
    assert!(c.exact);
    let weights = 4096u64 * 4096;
    // A multiply and an add a weight, and the activations' sums, for the mins, once for the eight rows of a subgroup.
    assert_eq!(c.int8_ops, 2 * weights + 2 * weights / 8);
    // 4 bits a code, a byte of scale and one of min every 32, two halves every 256; activations and results beside them.
    let planes = weights / 2 + weights / 32 * 2 + weights / 256 * 4;
    let rest = 4096 + 4096 / 32 * 4 + 4096 * 4;
    assert_eq!(c.dram_bytes(), planes + rest);
    for device in DEVICES.iter().filter(|d| d.subgroup == 32 && d.architecture != "apple9") {
        let e = Estimate::new(&kernel, &c, i.launch.grid.iter().map(|&n| u64::from(n)).product(), device);
        assert!(matches!(e.regime, Regime::Memory | Regime::Latency), "{}: {e:?}", device.name);
        assert!(e.occupancy > 0.3 && e.occupancy <= 1.0, "{}: {e:?}", device.name);
    }
}

#[test]
fn residency_is_the_least_of_its_limits() {
    let h100 = &DEVICES[0];
    assert_eq!(h100.resident(256, 32, 0), 8);
    assert_eq!(h100.resident(256, 128, 0), 2);
    // 125 registers are given as 128.
    assert_eq!(h100.resident(256, 125, 0), 2);
    assert_eq!(h100.resident(64, 32, 0), 32);
    assert_eq!(h100.resident(64, 32, 32 << 10), 7);
    assert_eq!(h100.resident(1024, 255, 0), 0);
}

#[test]
fn every_representative_kernel_has_a_cost_on_every_device() {
    for width in [32, 64] {
        for (_, i) in registry::instances(width).filter(|(_, i)| i.representative) {
            let kernel = crate::kernel::opt::optimize(&i.kernel.unwrap());
            let c = count(&kernel, i.launch.grid, &i.launch.bits(&kernel), &i.launch.reads);
            assert!(c.dram_bytes() > 0, "{}", i.name);
            for device in DEVICES.iter().filter(|d| d.subgroup == width) {
                let e = Estimate::new(&kernel, &c, 1 << 20, device);
                assert!(e.seconds > 0.0, "{} on {}: {e:?}", i.name, device.name);
                // The prompts' large tile wants more registers than a core of Apple's has for a workgroup of 256.
                let too_large = device.architecture == "apple9" && i.name.starts_with("qgemm_");
                assert!(e.resident > 0 || too_large, "{} on {}: {e:?}", i.name, device.name);
            }
        }
    }
}
