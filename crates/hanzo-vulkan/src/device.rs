//! A device that was opened, and how work gets to it.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ash::vk;

use crate::find::{DeviceInfo, Found};
use crate::instance::{NEEDED, Shared};
use crate::{Timing, VulkanError};

/// A device that runs kernels. Copies are the same device; it is closed when nothing of it is left.
#[derive(Clone, Debug)]
pub struct Vulkan(pub(crate) Arc<Opened>);

/// The device itself.
pub(crate) struct Opened {
    /// The instance, which may not go before its devices.
    _shared: Arc<Shared>,
    pub(crate) found: Found,
    pub(crate) raw: ash::Device,
    pub(crate) memory: vk::PhysicalDeviceMemoryProperties,
    family: u32,
    queue: Mutex<vk::Queue>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("info", &self.found.info).finish_non_exhaustive()
    }
}

impl Vulkan {
    pub(crate) fn open(shared: Arc<Shared>, found: Found) -> Result<Self, VulkanError> {
        let info = &found.info;
        if info.api < NEEDED {
            let what = info.name.clone();
            return Err(VulkanError::Version { what, found: info.api, needed: NEEDED });
        }
        let family = found.family.ok_or_else(|| VulkanError::NoQueue { device: info.name.clone() })?;
        let has = found.features;
        let priorities = [1.0];
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities)];
        let features = vk::PhysicalDeviceFeatures::default().shader_int16(has.int16);
        let mut v11 =
            vk::PhysicalDeviceVulkan11Features::default().storage_buffer16_bit_access(has.storage16);
        let mut v12 = vk::PhysicalDeviceVulkan12Features::default()
            .storage_buffer8_bit_access(has.storage8)
            .shader_int8(has.int8)
            .shader_float16(has.float16)
            .vulkan_memory_model(has.memory_model)
            .vulkan_memory_model_device_scope(has.memory_model_device);
        let mut v13 = vk::PhysicalDeviceVulkan13Features::default()
            .shader_integer_dot_product(has.dot)
            .subgroup_size_control(has.subgroup_control)
            .compute_full_subgroups(has.full_subgroups);
        let mut matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
        let extensions: Vec<_> = found.extensions().into_iter().map(CStr::as_ptr).collect();
        let mut create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_features(&features)
            .enabled_extension_names(&extensions)
            .push_next(&mut v11)
            .push_next(&mut v12)
            .push_next(&mut v13);
        if has.matrices {
            create = create.push_next(&mut matrices);
        }
        // SAFETY: the physical device is the instance's own, has the family, and reported every feature and extension that is enabled.
        let (raw, queue, memory) = unsafe {
            let raw = shared.raw.create_device(found.physical, &create, None);
            let raw = raw.map_err(VulkanError::call(&info.name, "opening the device"))?;
            let queue = raw.get_device_queue(family, 0);
            (raw, queue, shared.raw.get_physical_device_memory_properties(found.physical))
        };
        Ok(Self(Arc::new(Opened { _shared: shared, found, raw, memory, family, queue: Mutex::new(queue) })))
    }

    /// What it says of itself.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.found.info
    }
}

impl Opened {
    pub(crate) fn name(&self) -> &str {
        &self.found.info.name
    }

    pub(crate) fn failed(&self, what: &'static str) -> impl FnOnce(vk::Result) -> VulkanError {
        VulkanError::call(self.name(), what)
    }

    /// Records, submits, and waits until all of it is done.
    ///
    /// # Safety
    /// What is recorded must be valid: handles of this device that live until this returns, used by nobody else meanwhile.
    pub(crate) unsafe fn submit(
        &self,
        record: impl FnOnce(vk::CommandBuffer),
    ) -> Result<Timing, VulkanError> {
        let d = &self.raw;
        let mut made = Submission {
            device: self,
            pool: vk::CommandPool::null(),
            fence: vk::Fence::null(),
            stamps: vk::QueryPool::null(),
        };
        unsafe {
            let info = vk::CommandPoolCreateInfo::default().queue_family_index(self.family);
            made.pool = d.create_command_pool(&info, None).map_err(self.failed("making a command pool"))?;
            made.fence = d
                .create_fence(&vk::FenceCreateInfo::default(), None)
                .map_err(self.failed("making a fence"))?;
            if self.found.info.tick_ns.is_some() {
                let info =
                    vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(2);
                made.stamps = d.create_query_pool(&info, None).map_err(self.failed("making a clock"))?;
            }
            let info =
                vk::CommandBufferAllocateInfo::default().command_pool(made.pool).command_buffer_count(1);
            let commands =
                d.allocate_command_buffers(&info).map_err(self.failed("making a command buffer"))?;
            let Some(&command) = commands.first() else {
                return Err(self.failed("making a command buffer")(vk::Result::ERROR_UNKNOWN));
            };
            let begin =
                vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
            d.begin_command_buffer(command, &begin).map_err(self.failed("recording"))?;
            let stamped = made.stamps != vk::QueryPool::null();
            if stamped {
                d.cmd_reset_query_pool(command, made.stamps, 0, 2);
                d.cmd_write_timestamp(command, vk::PipelineStageFlags::TOP_OF_PIPE, made.stamps, 0);
            }
            record(command);
            if stamped {
                d.cmd_write_timestamp(command, vk::PipelineStageFlags::BOTTOM_OF_PIPE, made.stamps, 1);
            }
            d.end_command_buffer(command).map_err(self.failed("recording"))?;
            let submit = [vk::SubmitInfo::default().command_buffers(&commands)];
            let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let start = Instant::now();
            d.queue_submit(*queue, &submit, made.fence).map_err(self.failed("submitting"))?;
            // What is recorded may not be destroyed before it is done, so there is no other way than to wait for it.
            let done = d.wait_for_fences(&[made.fence], true, u64::MAX);
            let host = start.elapsed();
            if done.is_err_and(|e| e != vk::Result::ERROR_DEVICE_LOST) {
                // Whatever the wait failed of, what runs must end before it is destroyed. An error here leaves nothing else to try.
                let _ = d.queue_wait_idle(*queue);
            }
            drop(queue);
            done.map_err(self.failed("waiting"))?;
            let device = if stamped { self.between(made.stamps) } else { None };
            Ok(Timing { host, device })
        }
    }

    /// The time between the two stamps; `None` where the device did not leave them.
    unsafe fn between(&self, stamps: vk::QueryPool) -> Option<Duration> {
        let mut ticks = [0u64; 2];
        let flags = vk::QueryResultFlags::TYPE_64;
        unsafe { self.raw.get_query_pool_results(stamps, 0, &mut ticks, flags) }.ok()?;
        let mask = u64::MAX.checked_shr(64u32.saturating_sub(self.found.stamp_bits)).unwrap_or(0);
        let ns = (ticks[1].wrapping_sub(ticks[0]) & mask) as f64 * self.found.info.tick_ns?;
        Duration::try_from_secs_f64(ns / 1e9).ok().filter(|d| !d.is_zero())
    }

    /// Whatever was written is seen by whatever follows, the host included.
    ///
    /// # Safety
    /// `command` is being recorded.
    pub(crate) unsafe fn barrier(&self, command: vk::CommandBuffer) {
        let written = vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE;
        let seen = vk::AccessFlags::SHADER_READ
            | vk::AccessFlags::SHADER_WRITE
            | vk::AccessFlags::TRANSFER_READ
            | vk::AccessFlags::TRANSFER_WRITE
            | vk::AccessFlags::HOST_READ;
        let barrier = [vk::MemoryBarrier::default().src_access_mask(written).dst_access_mask(seen)];
        let work = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let flags = vk::DependencyFlags::empty();
        let next = work | vk::PipelineStageFlags::HOST;
        unsafe { self.raw.cmd_pipeline_barrier(command, work, next, flags, &barrier, &[], &[]) };
    }
}

/// What one submission is made of.
struct Submission<'d> {
    device: &'d Opened,
    pool: vk::CommandPool,
    fence: vk::Fence,
    stamps: vk::QueryPool,
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        let d = &self.device.raw;
        // SAFETY: the work is done, or was never submitted, or the device is lost; null handles are allowed.
        unsafe {
            d.destroy_query_pool(self.stamps, None);
            d.destroy_fence(self.fence, None);
            d.destroy_command_pool(self.pool, None);
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: buffers and launches hold this, so none is left, and nothing runs: submissions are waited for.
        unsafe { self.raw.destroy_device(None) };
    }
}
