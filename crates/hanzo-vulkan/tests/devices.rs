//! Devices found, opened and used; on machines without a GPU, Mesa's lavapipe.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use hanzo_fusion::kernel::emit::spirv;
use hanzo_fusion::kernel::{Builder, Kernel};
use hanzo_vulkan::{Buffer, Instance, Launch, Options, Program, Vulkan, VulkanError};

/// A device with validation where the machine has it; `None` where it has no device, which `HANZO_REQUIRE=all` does not forgive.
fn device() -> Option<(Instance, Vulkan)> {
    let instance = Instance::new(&Options { validate: true, library: None });
    match instance.and_then(|i| Ok((i.clone(), i.open_software()?))) {
        Ok(both) => Some(both),
        Err(e) => {
            assert!(e.is_absence(), "{e}");
            let required = std::env::var("HANZO_REQUIRE").is_ok_and(|v| v == "all");
            assert!(!required, "HANZO_REQUIRE=all, but {e} (Mesa's lavapipe will do)");
            println!("skipped: {e}");
            None
        }
    }
}

/// `y[i] = a · x[i] + i`.
fn kernel(workgroup: u32, subgroup: u32) -> Kernel {
    let k = Builder::new("scale", "", workgroup, subgroup);
    let (x, y, a) = (k.input::<u32>("x"), k.output::<u32>("y"), k.param::<u32>("a"));
    let i = k.workgroup_id(0) * workgroup + k.local_id();
    y.set(i, x.at(i) * a + i);
    k.finish().unwrap()
}

fn launch(
    vulkan: &Vulkan,
    kernel: &Kernel,
    subgroup: Option<u32>,
    groups: u32,
    buffers: &[Buffer],
    params: &[u32],
) -> Result<Launch, VulkanError> {
    let words = spirv::module(kernel).unwrap();
    let program = Program { name: &kernel.name, words: &words, subgroup, shared_bytes: 0 };
    vulkan.launch(&program, [groups, 1, 1], buffers, params)
}

fn program(words: &[u32], shared_bytes: u64) -> Program<'_> {
    Program { name: "scale", words, subgroup: None, shared_bytes }
}

fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

#[test]
fn a_kernel_runs_and_can_be_run_again_with_other_parameters() {
    let Some((instance, vulkan)) = device() else { return };
    let kernel = kernel(64, 32);
    let (x, y) = (vulkan.upload(&bytes(0..192)).unwrap(), vulkan.buffer(4 * 192).unwrap());
    let mut launch = launch(&vulkan, &kernel, None, 3, &[x, y.clone()], &[5]).unwrap();
    for a in [5, 7] {
        launch.set_params(&[a]).unwrap();
        let timing = launch.run(2).unwrap();
        assert!(timing.device.is_none_or(|t| t <= timing.host), "{timing:?}");
        assert_eq!(vulkan.info().tick_ns.is_some(), timing.device.is_some(), "{timing:?}");
        assert_eq!(vulkan.download(&y, 4 * 192).unwrap(), bytes((0..192).map(|i| i * a + i)));
    }
    assert!(launch.set_params(&[]).is_err());
    // What still uses the device keeps it open.
    drop(vulkan);
    launch.run(1).unwrap();
    drop((launch, y));
    assert_eq!(instance.complaints(), Vec::<String>::new());
}

#[test]
fn contents_of_any_length_come_back() {
    let Some((instance, vulkan)) = device() else { return };
    // The last is more than is copied at a time.
    for n in [0usize, 1, 15, 16, 17, 1000, (64 << 20) + 5] {
        let contents: Vec<u8> = (0..n).map(|i| (i * 7 + i / 251) as u8).collect();
        let buffer = vulkan.upload(&contents).unwrap();
        assert!(vulkan.download(&buffer, n).unwrap() == contents, "{n} bytes");
        assert!(matches!(vulkan.download(&buffer, n + 17), Err(VulkanError::Size { .. })));
    }
    assert_eq!(instance.complaints(), Vec::<String>::new());
}

#[test]
fn what_a_device_cannot_do_is_refused_before_its_driver_hears_of_it() {
    let Some((instance, vulkan)) = device() else { return };
    let info = vulkan.info().clone();
    let good = kernel(64, 32);
    let buffers = [vulkan.upload(&[0; 256]).unwrap(), vulkan.buffer(256).unwrap()];
    let told = |outcome: Result<Launch, VulkanError>, parts: &[&str]| {
        let e = outcome.map(|_| ()).unwrap_err();
        parts.iter().for_each(|part| assert!(e.to_string().contains(part), "{e} has no {part}"));
        e
    };
    let try_ = |kernel: &Kernel, subgroup, groups, buffers: &[Buffer], params: &[u32]| {
        launch(&vulkan, kernel, subgroup, groups, buffers, params)
    };
    if let Some(too_many) = info.max_groups[0].checked_add(1) {
        let e = told(try_(&good, None, too_many, &buffers, &[1]), &["scale", "along x"]);
        assert!(matches!(e, VulkanError::Limit { .. }));
    }
    told(try_(&good, Some(4096), 1, &buffers, &[1]), &["subgroups of 4096", &info.subgroup.to_string()]);
    told(try_(&good, Some(0), 1, &buffers, &[1]), &["subgroups of 0"]);
    told(try_(&good, None, 1, &buffers[..1], &[1]), &["binds 2 buffers, not 1"]);
    let params = vec![0; info.max_param_bytes as usize / 4 + 1];
    told(try_(&good, None, 1, &buffers, &params), &["bytes of parameters"]);

    let words = spirv::module(&good).unwrap();
    let grid = [1, 1, 1];
    let shared = info.max_shared_bytes + 1;
    told(vulkan.launch(&program(&words, shared), grid, &buffers, &[1]), &["bytes of workgroup memory"]);
    for missing in [1, 2, 3, words.len() / 2] {
        let part = &words[..words.len() - missing];
        told(vulkan.launch(&program(part, 0), grid, &buffers, &[1]), &["breaks off"]);
    }
    told(vulkan.launch(&program(&[], 0), grid, &buffers, &[1]), &["no SPIR-V"]);
    // The size of its workgroups stands behind the number of that mode.
    let mut large = words.clone();
    let at = large.windows(4).position(|w| w == [17, 64, 1, 1]).unwrap();
    large[at + 1] = info.max_workgroup + 1;
    let most = info.max_workgroup.to_string();
    told(vulkan.launch(&program(&large, 0), grid, &buffers, &[1]), &["invocations a workgroup", &most]);
    // The first instruction is a capability: one that nothing here enables (geometry shaders).
    let mut other = words;
    other[6] = 2;
    told(vulkan.launch(&program(&other, 0), grid, &buffers, &[1]), &["capability 2"]);

    if let Some(bytes) = info.max_buffer_bytes.checked_add(1) {
        assert!(matches!(vulkan.buffer(bytes), Err(VulkanError::Size { .. })));
    }
    assert!(vulkan.buffer(u64::MAX).is_err());
    let second = instance.open_software().unwrap();
    told(launch(&second, &good, None, 1, &buffers, &[1]), &["another device's"]);
    assert!(second.download(&buffers[0], 1).is_err());
    assert_eq!(instance.complaints(), Vec::<String>::new());
}

#[test]
fn devices_have_numbers() {
    let Some((instance, _)) = device() else { return };
    let devices = instance.devices().unwrap();
    for (i, d) in devices.iter().enumerate() {
        assert_eq!(d.index, i);
        assert!(!d.name.is_empty() && !d.driver.is_empty() && d.memory_bytes > 0 && d.subgroup > 0, "{d:?}");
    }
    let e = instance.open(Some(devices.len())).unwrap_err();
    assert!(e.is_absence() && matches!(e, VulkanError::NoSuchDevice { .. }), "{e}");
    assert!(e.to_string().contains(&devices[0].name), "{e}");
    assert_eq!(instance.open(Some(0)).unwrap().info(), &devices[0]);
    let best = instance.open(None).unwrap();
    assert!(devices.iter().all(|d| best.info().kind <= d.kind));
}

#[test]
fn a_machine_without_vulkan_is_told() {
    let library = Some("/nonexistent/libvulkan.so.1".into());
    let e = Instance::new(&Options { library, validate: false }).unwrap_err();
    assert!(e.is_absence() && e.to_string().contains("/nonexistent/libvulkan.so.1"), "{e}");
    // A library, but another.
    let library = Some("libc.so.6".into());
    assert!(Instance::new(&Options { library, validate: false }).is_err());
}
