//! Buffers in a device's own memory.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use ash::vk;

use crate::device::Opened;
use crate::{Vulkan, VulkanError};

/// Bytes that are copied between host and device at a time.
const PIECE: u64 = 64 << 20;
/// Buffers are multiples of this, and none is empty.
const GRAIN: u64 = 16;

/// A buffer in the device's own memory, for kernels. Copies are the same buffer; it is freed when nothing holds it.
#[derive(Clone, Debug)]
pub struct Buffer(pub(crate) Arc<Allocation>);

impl Buffer {
    /// Its bytes: what was asked for, rounded up to 16.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

pub(crate) struct Allocation {
    pub(crate) device: Arc<Opened>,
    pub(crate) buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    pub(crate) bytes: u64,
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: nothing of the device runs that uses them; null handles are allowed.
        unsafe {
            self.device.raw.destroy_buffer(self.buffer, None);
            self.device.raw.free_memory(self.memory, None);
        }
    }
}

impl Allocation {
    /// A buffer in the first kind of memory that has all of one of the `wanted` sets of properties, tried in turn.
    fn new(
        device: &Arc<Opened>,
        bytes: u64,
        usage: vk::BufferUsageFlags,
        wanted: &[vk::MemoryPropertyFlags],
    ) -> Result<Self, VulkanError> {
        let d = &device.raw;
        let mut made = Self {
            device: Arc::clone(device),
            buffer: vk::Buffer::null(),
            memory: vk::DeviceMemory::null(),
            bytes,
        };
        let full = |source: vk::Result| match source {
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
            | vk::Result::ERROR_OUT_OF_HOST_MEMORY
            | vk::Result::ERROR_TOO_MANY_OBJECTS => {
                VulkanError::Memory { device: device.name().to_owned(), bytes }
            }
            source => device.failed("allocating")(source),
        };
        // SAFETY: sizes are not 0, the kind of memory is one of the device's and allowed for the buffer.
        unsafe {
            let info = vk::BufferCreateInfo::default().size(bytes).usage(usage);
            made.buffer = d.create_buffer(&info, None).map_err(full)?;
            let needs = d.get_buffer_memory_requirements(made.buffer);
            let kinds = device.memory.memory_types.iter().zip(0..device.memory.memory_type_count);
            let allowed: Vec<_> = kinds.filter(|(_, i)| needs.memory_type_bits >> i & 1 == 1).collect();
            let find = |wanted: &vk::MemoryPropertyFlags| {
                allowed.iter().find(|(kind, _)| kind.property_flags.contains(*wanted)).map(|(_, i)| *i)
            };
            let kind = wanted.iter().find_map(find);
            let kind =
                kind.ok_or_else(|| device.failed("finding memory")(vk::Result::ERROR_FEATURE_NOT_PRESENT))?;
            let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(kind);
            made.memory = d.allocate_memory(&info, None).map_err(full)?;
            d.bind_buffer_memory(made.buffer, made.memory, 0).map_err(full)?;
        }
        Ok(made)
    }

    /// Runs `with` on the first bytes, which the host sees while it runs.
    fn mapped<R>(&self, with: impl FnOnce(*mut u8) -> R) -> Result<R, VulkanError> {
        let d = &self.device.raw;
        // SAFETY: the memory is visible to the host, not mapped already, and no work of the device uses it: staging buffers live in one call.
        unsafe {
            let at = d.map_memory(self.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty());
            let out = with(at.map_err(self.device.failed("mapping memory"))?.cast());
            d.unmap_memory(self.memory);
            Ok(out)
        }
    }
}

/// Memory that the host sees without being told to look.
const HOST: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::HOST_VISIBLE.as_raw() | vk::MemoryPropertyFlags::HOST_COHERENT.as_raw(),
);
/// That it also reads fast.
const HOST_CACHED: vk::MemoryPropertyFlags =
    vk::MemoryPropertyFlags::from_raw(HOST.as_raw() | vk::MemoryPropertyFlags::HOST_CACHED.as_raw());

impl Vulkan {
    /// A buffer of at least so many bytes, with anything in it.
    ///
    /// # Errors
    /// [`VulkanError::Size`] above what a kernel can reach on this device, [`VulkanError::Memory`] where there is not as much.
    pub fn buffer(&self, bytes: u64) -> Result<Buffer, VulkanError> {
        let most = self.info().max_buffer_bytes;
        if bytes > most {
            let why = format!("{} allows {most}", self.info().name);
            return Err(VulkanError::Size { bytes, why });
        }
        let rounded = bytes.max(1).next_multiple_of(GRAIN);
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let own = [vk::MemoryPropertyFlags::DEVICE_LOCAL, vk::MemoryPropertyFlags::empty()];
        Ok(Buffer(Arc::new(Allocation::new(&self.0, rounded, usage, &own)?)))
    }

    /// A buffer with these contents.
    ///
    /// # Errors
    /// As [`Vulkan::buffer`], and faults of the device.
    pub fn upload(&self, bytes: &[u8]) -> Result<Buffer, VulkanError> {
        let buffer = self.buffer(bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(buffer);
        }
        let staging = self.staging(bytes.len() as u64, vk::BufferUsageFlags::TRANSFER_SRC, &[HOST])?;
        let mut at = 0;
        for piece in bytes.chunks(staging.bytes as usize) {
            // SAFETY: a piece is no longer than the staging buffer.
            staging.mapped(|to| unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len()) })?;
            self.copy(
                &staging,
                &buffer.0,
                vk::BufferCopy::default().dst_offset(at).size(piece.len() as u64),
            )?;
            at += piece.len() as u64;
        }
        Ok(buffer)
    }

    /// The first `len` bytes of a buffer of this device.
    ///
    /// # Errors
    /// [`VulkanError::Size`] for more than it has, and faults of the device.
    pub fn download(&self, buffer: &Buffer, len: usize) -> Result<Vec<u8>, VulkanError> {
        if len as u64 > buffer.bytes() || !Arc::ptr_eq(&buffer.0.device, &self.0) {
            let why = format!("{len} bytes of it were asked of {}", self.info().name);
            return Err(VulkanError::Size { bytes: buffer.bytes(), why });
        }
        let mut out = Vec::with_capacity(len);
        if len == 0 {
            return Ok(out);
        }
        let usage = vk::BufferUsageFlags::TRANSFER_DST;
        let staging = self.staging(len as u64, usage, &[HOST_CACHED, HOST])?;
        while out.len() < len {
            let piece = (len - out.len()).min(staging.bytes as usize);
            let region = vk::BufferCopy::default().src_offset(out.len() as u64).size(piece as u64);
            self.copy(&buffer.0, &staging, region)?;
            // SAFETY: a piece is no longer than the staging buffer, whose bytes the copy has just defined.
            staging
                .mapped(|from| out.extend_from_slice(unsafe { std::slice::from_raw_parts(from, piece) }))?;
        }
        Ok(out)
    }

    fn staging(
        &self,
        bytes: u64,
        usage: vk::BufferUsageFlags,
        wanted: &[vk::MemoryPropertyFlags],
    ) -> Result<Allocation, VulkanError> {
        Allocation::new(&self.0, bytes.min(PIECE).next_multiple_of(GRAIN), usage, wanted)
    }

    fn copy(&self, from: &Allocation, to: &Allocation, region: vk::BufferCopy) -> Result<(), VulkanError> {
        // SAFETY: the regions lie in both buffers, which are this device's and live until the copy is done.
        unsafe {
            self.0.submit(|command| {
                self.0.raw.cmd_copy_buffer(command, from.buffer, to.buffer, &[region]);
                self.0.barrier(command);
            })?;
        }
        Ok(())
    }
}
