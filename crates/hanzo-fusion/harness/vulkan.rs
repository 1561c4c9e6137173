//! Kernels on a Vulkan device: the proofs' (on machines without a GPU, Mesa's lavapipe) and the benches'. The device is `hanzo-vulkan`'s; here kernels
//! become its programs and operands bytes. Belongs to neither the library nor the binary: tests and benches include it by its path.

#![allow(dead_code)]

use std::time::Duration;

use hanzo_fusion::kernel::Kernel;
use hanzo_fusion::kernel::emit::spirv;
use hanzo_fusion::kernel::interpret::BufferData;
use hanzo_vulkan::{DeviceKind, Instance, Options, Program, VulkanError};

/// A device.
pub(crate) struct Vulkan {
    instance: Instance,
    device: hanzo_vulkan::Vulkan,
    /// As its driver calls it.
    pub(crate) name: String,
    /// Whether it is a CPU under a driver.
    pub(crate) software: bool,
    /// Lanes of its subgroups.
    pub(crate) subgroup: u32,
    /// Whether its subgroups multiply matrices of 16 × 16 × 16: of i8 into i32, of f16 into f32.
    pub(crate) units: [bool; 2],
}

/// Which device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    /// The first software device, or the first at all: the same on most machines.
    Software,
    /// The best whose name contains this, in any case; real ones before software.
    Named(&'a str),
}

impl Vulkan {
    /// `None` where the machine has no such device. Validation layers are on where the machine has them and whoever opens the device asks.
    pub(crate) fn open(which: Which<'_>, validate: bool) -> Option<Self> {
        let there = |e: VulkanError| assert!(e.is_absence(), "{e}");
        let instance = Instance::new(&Options { validate, library: None }).map_err(there).ok()?;
        if validate && !instance.is_validated() {
            println!("no validation layers on this machine");
        }
        let device = match which {
            Which::Software => instance.open_software(),
            Which::Named(part) => instance.open_by(|devices| {
                let part = part.to_lowercase();
                let named = devices.iter().filter(|d| d.name.to_lowercase().contains(&part));
                named.min_by_key(|d| d.kind).map(|d| d.index)
            }),
        };
        let device = device.map_err(there).ok()?;
        let info = device.info();
        let (name, software) = (info.name.clone(), info.kind == DeviceKind::Cpu);
        let (subgroup, units) = (info.subgroup, info.matrix_units);
        Some(Self { instance, device, name, software, subgroup, units })
    }

    /// What the validation layers said since the last time.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.instance.complaints()
    }

    /// A launch of `kernel` with its buffers in the device's own memory. `params` are the 32 bits of each.
    pub(crate) fn prepare(
        &self,
        kernel: &Kernel,
        grid: [u32; 3],
        buffers: &[BufferData],
        params: &[u32],
    ) -> Resident<'_> {
        let words = spirv::module(kernel).unwrap_or_else(|e| panic!("{e}"));
        let mut contents: Vec<Vec<u8>> = Vec::new();
        for (data, decl) in buffers.iter().zip(&kernel.buffers) {
            let n = decl.elem.bytes();
            // What nobody wrote yet is told by a value that no test expects.
            let bytes = data.words.iter().flat_map(|w| w.unwrap_or(0xdead_beef).to_le_bytes()[..n].to_vec());
            contents.push(bytes.collect());
        }
        let tables = kernel.tables.iter().map(|t| t.words.iter().flat_map(|w| w.to_le_bytes()).collect());
        contents.extend(tables);
        let program = Program {
            name: &kernel.name,
            words: &words,
            subgroup: Some(kernel.subgroup),
            shared_bytes: kernel.shared_bytes() as u64,
        };
        let uploaded: Vec<_> = contents.iter().map(|bytes| self.device.upload(bytes).unwrap()).collect();
        let launch = self.device.launch(&program, grid, &uploaded, params);
        let launch = launch.unwrap_or_else(|e| panic!("{e}"));
        let elements = kernel.buffers.iter().map(|b| b.elem.bytes()).collect();
        Resident { vulkan: self, launch, elements }
    }
}

/// A launch that can be repeated: its operands stay on the device.
pub(crate) struct Resident<'v> {
    vulkan: &'v Vulkan,
    launch: hanzo_vulkan::Launch,
    /// Bytes of each buffer's elements.
    elements: Vec<usize>,
}

impl Resident<'_> {
    /// Runs it `times` times, one after the other, in one submission with one wait at its end; the time from one to the other.
    pub(crate) fn run(&self, times: u32) -> Duration {
        self.launch.run(times).unwrap_or_else(|e| panic!("{e}")).host
    }

    /// What buffer `i` holds, `len` elements of it.
    pub(crate) fn read(&self, i: usize, len: usize) -> BufferData {
        let n = self.elements[i];
        let bytes = self.vulkan.device.download(&self.launch.buffers()[i], len * n).unwrap();
        let words = bytes.chunks_exact(n).map(|c| {
            let mut word = [0; 4];
            word[..n].copy_from_slice(c);
            Some(u32::from_le_bytes(word))
        });
        BufferData { words: words.collect() }
    }
}
