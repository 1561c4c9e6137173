//! What can go wrong between this program and a device.

use ash::vk;
use thiserror::Error;

use crate::Version;

/// Errors of devices, each with what a person needs to act.
#[derive(Debug, Error)]
pub enum VulkanError {
    /// There is no Vulkan on this machine, or not where the loader's library is looked for.
    #[error(
        "no Vulkan on this machine: its library cannot be opened ({why}); it comes with the graphics driver, or a package named libvulkan1 or vulkan-loader"
    )]
    NoLibrary {
        /// What the system says.
        why: String,
    },
    /// The library is there, devices are not.
    #[error("there is no Vulkan device: {why}")]
    NoDevice {
        /// What the loader says.
        why: String,
    },
    /// No device has that number.
    #[error("there is no Vulkan device {index}; there are: {}", devices.join("; "))]
    NoSuchDevice {
        /// The number that was asked for.
        index: usize,
        /// Number and name of those that there are.
        devices: Vec<String>,
    },
    /// Library or device are older than kernels need.
    #[error("{what} speaks Vulkan {found}; {needed} is needed")]
    Version {
        /// Which.
        what: String,
        /// What it has.
        found: Version,
        /// What there must be.
        needed: Version,
    },
    /// The device computes nothing.
    #[error("{device} has no queue for compute work")]
    NoQueue {
        /// Its name.
        device: String,
    },
    /// The device lacks something that a kernel uses.
    #[error("kernel `{kernel}` needs {feature}, which {device} does not have")]
    Feature {
        /// Which kernel.
        kernel: String,
        /// In Vulkan's word.
        feature: &'static str,
        /// Which device.
        device: String,
    },
    /// A kernel's launch exceeds a limit of the device.
    #[error("`{kernel}`: {asked} {what}; {device} allows {most}")]
    Limit {
        /// Which kernel.
        kernel: String,
        /// What there is too much of.
        what: &'static str,
        /// How much was asked for.
        asked: u64,
        /// How much there may be.
        most: u64,
        /// Which device.
        device: String,
    },
    /// A kernel is written for other subgroups than the device can have.
    #[error("kernel `{kernel}` is for subgroups of {asked} lanes; {device} has {min} to {max}{}", if *fixed { ", and lets nobody choose" } else { "" })]
    Subgroup {
        /// Which kernel.
        kernel: String,
        /// Its lanes.
        asked: u32,
        /// Fewest of the device.
        min: u32,
        /// Most of the device.
        max: u32,
        /// Whether the device always takes the same.
        fixed: bool,
        /// Which device.
        device: String,
    },
    /// A module that cannot be run.
    #[error("kernel `{kernel}`: {why}")]
    Module {
        /// Which kernel.
        kernel: String,
        /// What is wrong with it.
        why: String,
    },
    /// A buffer, or what is copied to or from it, has an impossible size.
    #[error("a buffer of {bytes} bytes: {why}")]
    Size {
        /// How much was asked for.
        bytes: u64,
        /// Why it cannot be.
        why: String,
    },
    /// The device, or its driver on the host, has no memory left.
    #[error("{device} has no {bytes} bytes to give")]
    Memory {
        /// Which device.
        device: String,
        /// How much was asked for.
        bytes: u64,
    },
    /// A call that should have worked.
    #[error("{device}: {what} failed: {source}")]
    Call {
        /// Which device, or "Vulkan".
        device: String,
        /// What was called for.
        what: &'static str,
        /// What came of it.
        source: vk::Result,
    },
}

impl VulkanError {
    /// Whether what was asked for is not there at all: no Vulkan, no device, none of that number.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::NoLibrary { .. } | Self::NoDevice { .. } | Self::NoSuchDevice { .. })
    }

    pub(crate) fn call(device: &str, what: &'static str) -> impl FnOnce(vk::Result) -> Self {
        let device = device.to_owned();
        move |source| Self::Call { device, what, source }
    }
}
