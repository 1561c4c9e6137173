//! clang for AMD's GPUs: compiles HIP text without HIP's headers or a driver, and reads what its assembly says of each kernel.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// A clang that has AMD's targets, and lld beside it.
pub(crate) struct Clang(String);

/// What a compilation gave.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) kernels: HashMap<String, Usage>,
    assembly: String,
}

/// A kernel's metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Registers of a lane.
    pub(crate) vector: u32,
    /// Registers of a wave.
    pub(crate) scalar: u32,
    /// Bytes of a lane's private memory.
    pub(crate) scratch: u32,
    /// Scalar and vector registers that were spilled.
    pub(crate) spills: [u32; 2],
    /// Bytes of workgroup memory.
    pub(crate) shared: u32,
    /// Lanes of a wave.
    pub(crate) wave: u32,
}

impl Clang {
    /// `None` where the machine has none.
    pub(crate) fn find() -> Option<Self> {
        let runs =
            |name: &str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
        (runs("clang++-19") && runs("ld.lld-19")).then(|| Self("clang++-19".to_owned()))
    }

    /// Compiles for an architecture ("gfx942"); files go to a folder of that name.
    pub(crate) fn compile(&self, name: &str, source: &str, arch: &str) -> Result<Compiled, String> {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hip-{name}"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("kernels.hip"), source).unwrap();
        let out = Command::new(&self.0)
            .current_dir(&dir)
            .args(["-x", "hip", &format!("--offload-arch={arch}"), "--offload-device-only"])
            .args(["--no-gpu-bundle-output", "-nogpulib", "-nogpuinc", "-std=c++17", "-O3"])
            .args(["--save-temps=obj", "-o", "kernels.co", "kernels.hip"])
            .output()
            .unwrap();
        if !out.status.success() {
            return Err(String::from_utf8_lossy(&out.stderr).into_owned());
        }
        let assembly = dir.join(format!("kernels-hip-amdgcn-amd-amdhsa-{arch}.s"));
        let assembly = std::fs::read_to_string(assembly).unwrap();
        let object = std::fs::read(dir.join("kernels.co")).unwrap();
        assert!(object.starts_with(b"\x7fELF"), "{arch}: no code object");
        Ok(Compiled { kernels: metadata(&assembly), assembly })
    }
}

impl Compiled {
    /// Whether an instruction that begins so stands between a label of the kernel and a later branch back to it.
    pub(crate) fn in_a_loop(&self, kernel: &str, what: &str) -> bool {
        let lines = self.assembly.lines().skip_while(|line| !line.starts_with(&format!("{kernel}:")));
        let body: Vec<_> = lines.map(str::trim).take_while(|line| !line.starts_with(".Lfunc_end")).collect();
        let labels = body.iter().enumerate().filter_map(|(at, line)| {
            let (label, _) = line.split_once(':')?;
            label.starts_with(".LBB").then_some((at, label))
        });
        labels.into_iter().any(|(start, label)| {
            let back = |line: &&str| line.contains("branch") && line.split_whitespace().nth(1) == Some(label);
            let end = body.iter().rposition(back).unwrap_or(0);
            start < end && body[start..end].iter().any(|line| line.starts_with(what))
        })
    }
}

/// The kernels of the `amdhsa.kernels` list that ends the assembly.
fn metadata(assembly: &str) -> HashMap<String, Usage> {
    let list = assembly.split_once("amdhsa.kernels:").map_or("", |(_, list)| list);
    let list = list.split("\namdhsa.").next().unwrap_or_default();
    let mut kernels = HashMap::new();
    for entry in list.split("\n  - ").skip(1) {
        let mut usage = Usage::default();
        let mut name = "";
        for line in entry.lines() {
            let Some((key, value)) = line.trim().split_once(':') else { continue };
            let value = value.trim();
            let number = || value.parse().unwrap_or(u32::MAX);
            match key {
                ".name" => name = value,
                ".vgpr_count" => usage.vector = number(),
                ".sgpr_count" => usage.scalar = number(),
                ".private_segment_fixed_size" => usage.scratch = number(),
                ".sgpr_spill_count" => usage.spills[0] = number(),
                ".vgpr_spill_count" => usage.spills[1] = number(),
                ".group_segment_fixed_size" => usage.shared = number(),
                ".wavefront_size" => usage.wave = number(),
                _ => {}
            }
        }
        kernels.insert(name.to_owned(), usage);
    }
    kernels
}
