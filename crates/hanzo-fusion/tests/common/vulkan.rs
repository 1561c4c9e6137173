//! Runs cases on a Vulkan device: on machines without a GPU, Mesa's lavapipe. Validation layers are on where the machine has them, and whatever
//! they say fails the test.

use std::process::Command;

use hanzo_fusion::kernel::emit::spirv;
use hanzo_fusion::kernel::interpret::BufferData;

use super::Case;

#[path = "../../harness/vulkan.rs"]
mod device;

use device::Which;

/// A device.
pub(crate) struct Vulkan {
    device: device::Vulkan,
    /// Lanes of its subgroups.
    pub(crate) subgroup: u32,
}

impl Vulkan {
    /// The first software device, or the first device at all; `None` where the machine has none, which `HANZO_REQUIRE=all` does not forgive.
    pub(crate) fn new() -> Option<Self> {
        let found = device::Vulkan::open(Which::Software, true);
        if found.is_none() {
            let required = std::env::var("HANZO_REQUIRE").is_ok_and(|v| v == "all");
            assert!(!required, "HANZO_REQUIRE=all, but there is no Vulkan device (Mesa's lavapipe will do)");
            println!("skipped: no Vulkan device was found");
        }
        found.map(|device| Self { subgroup: device.subgroup, device })
    }

    /// The buffers after a run.
    pub(crate) fn run(&self, case: &Case) -> Vec<BufferData> {
        let words = spirv::module(&case.kernel).unwrap_or_else(|e| panic!("{e}"));
        validate(&case.kernel.name, &words);
        let launch = self.device.prepare(&case.kernel, case.grid, &case.buffers, &case.params);
        launch.run(1);
        let out = case.buffers.iter().enumerate().map(|(i, b)| launch.read(i, b.words.len())).collect();
        drop(launch);
        let complaints = self.device.complaints();
        assert!(complaints.is_empty(), "{}: {}", case.kernel.name, complaints.join("\n"));
        out
    }
}

/// Runs spirv-val on a module, where the machine has it.
fn validate(name: &str, words: &[u32]) {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.spv"));
    std::fs::write(&path, words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    match Command::new("spirv-val").args(["--target-env", "vulkan1.3"]).arg(&path).output() {
        Ok(out) => assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stdout)),
        Err(_) => {
            let required = std::env::var("HANZO_REQUIRE").is_ok_and(|v| v == "all");
            assert!(!required, "HANZO_REQUIRE=all, but there is no spirv-val");
        }
    }
}
