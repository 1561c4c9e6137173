//! Vulkan devices that run compute kernels: found, opened, given memory and SPIR-V, run and timed.
//!
//! The library is opened when it is asked for, so a program that has this crate starts on machines without Vulkan, where
//! [`Instance::new`] says so. What a kernel needs of its device is read from its module and compared with what the device has before the driver
//! sees it ([`Vulkan::launch`]). One launch is one submission that is waited for.
//!
//! Left to others: what the kernels are (SPIR-V comes as words, operands as bytes), plans, models, and recording many launches. Modules are
//! trusted as the program's own code is: Vulkan does not check them, so they come from `hanzo-fusion`'s emitter, whose kernels are verified, and from
//! nowhere else.

mod device;
mod error;
mod find;
mod instance;
mod launch;
mod memory;
mod needs;

pub use device::Vulkan;
pub use error::VulkanError;
pub use find::{DeviceInfo, DeviceKind, Version};
pub use instance::{Instance, Options};
pub use launch::{Launch, Program, Timing};
pub use memory::Buffer;
