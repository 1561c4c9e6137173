//! The loader's library, and what validation layers say.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;

use crate::find::{DeviceInfo, DeviceKind, Found, Version};
use crate::{Vulkan, VulkanError};

const VALIDATION: &CStr = c"VK_LAYER_KHRONOS_validation";
/// Most messages that are kept.
const MAX_MESSAGES: usize = 1000;
/// The oldest loader that can list devices with what is asked of them here.
const LOADER: Version = Version { major: 1, minor: 1, patch: 0 };
/// The version that kernels are written for.
pub(crate) const NEEDED: Version = Version { major: 1, minor: 3, patch: 0 };

/// How Vulkan is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The loader's library; where the system keeps it if `None`.
    pub library: Option<PathBuf>,
    /// Whether validation layers watch, where the machine has them.
    pub validate: bool,
}

/// Vulkan on this machine.
#[derive(Clone, Debug)]
pub struct Instance(Arc<Shared>);

/// What outlives every device.
pub(crate) struct Shared {
    pub(crate) entry: ash::Entry,
    pub(crate) raw: ash::Instance,
    messenger: Option<(ash::ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    heard: Arc<Heard>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("validated", &self.messenger.is_some()).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

unsafe extern "system" fn hear(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the loader passes valid data whose message is null or a C string, and the pointer that the messenger was made with, to a `Heard` that
    // outlives it.
    let (message, heard) = unsafe { ((*data).p_message, &*user.cast_const().cast::<Heard>()) };
    if !message.is_null() {
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
        let mut all = heard.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MAX_MESSAGES {
            all.push(text);
        }
    }
    vk::FALSE
}

impl Instance {
    /// Opens the library.
    ///
    /// # Errors
    /// [`VulkanError::NoLibrary`] without Vulkan, [`VulkanError::NoDevice`] where the loader has no driver, and faults of the loader.
    pub fn new(options: &Options) -> Result<Self, VulkanError> {
        // SAFETY: the loader's library, whose initialization is meant to be run by any program; it stays loaded as long as `entry`.
        let entry = unsafe {
            match &options.library {
                Some(path) => ash::Entry::load_from(path),
                None => ash::Entry::load(),
            }
        };
        let entry = entry.map_err(|e| VulkanError::NoLibrary { why: e.to_string() })?;
        // SAFETY: calls in the order that Vulkan asks for, with structures that live until they return.
        unsafe { Self::create(entry, options.validate) }
    }

    unsafe fn create(entry: ash::Entry, validate: bool) -> Result<Self, VulkanError> {
        let failed = |what| VulkanError::call("Vulkan", what);
        let version = unsafe { entry.try_enumerate_instance_version() };
        let version =
            Version::of(version.map_err(failed("asking for the version"))?.unwrap_or(vk::API_VERSION_1_0));
        if version < LOADER {
            return Err(VulkanError::Version {
                what: "the Vulkan library".to_owned(),
                found: version,
                needed: LOADER,
            });
        }
        let layers = unsafe { entry.enumerate_instance_layer_properties() };
        let layers = layers.map_err(failed("listing layers"))?;
        let validate = validate && layers.iter().any(|l| l.layer_name_as_c_str() == Ok(VALIDATION));
        let extensions = unsafe { entry.enumerate_instance_extension_properties(None) };
        let extensions = extensions.map_err(failed("listing extensions"))?;
        let portability = ash::khr::portability_enumeration::NAME;
        let portable = extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(portability));
        let app = vk::ApplicationInfo::default().application_name(c"hanzo").api_version(vk::API_VERSION_1_3);
        let (mut layer_names, mut names) = (vec![], vec![]);
        if validate {
            layer_names.push(VALIDATION.as_ptr());
            names.push(ash::ext::debug_utils::NAME.as_ptr());
        }
        if portable {
            names.push(portability.as_ptr());
        }
        let heard = Arc::new(Heard::default());
        let (severity, kind) =
            (vk::DebugUtilsMessageSeverityFlagsEXT::empty(), vk::DebugUtilsMessageTypeFlagsEXT::empty());
        let mut messenger = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(
                severity
                    | vk::DebugUtilsMessageSeverityFlagsEXT::ERROR
                    | vk::DebugUtilsMessageSeverityFlagsEXT::WARNING,
            )
            .message_type(
                kind | vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION
                    | vk::DebugUtilsMessageTypeFlagsEXT::PERFORMANCE,
            )
            .pfn_user_callback(Some(hear))
            .user_data(Arc::as_ptr(&heard).cast_mut().cast());
        let mut info = vk::InstanceCreateInfo::default()
            .application_info(&app)
            .enabled_layer_names(&layer_names)
            .enabled_extension_names(&names);
        if portable {
            // Devices that lack parts of Vulkan, such as those on Metal, are shown only to who asks.
            info = info.flags(vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR);
        }
        if validate {
            info = info.push_next(&mut messenger);
        }
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(|source| match source {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => {
                VulkanError::NoDevice { why: "the Vulkan library finds no driver".to_owned() }
            }
            source => VulkanError::Call { device: "Vulkan".to_owned(), what: "making an instance", source },
        })?;
        let mut shared = Shared { entry, raw, messenger: None, heard };
        if validate {
            let debug = ash::ext::debug_utils::Instance::new(&shared.entry, &shared.raw);
            let made = unsafe { debug.create_debug_utils_messenger(&messenger, None) };
            shared.messenger = Some((debug, made.map_err(failed("listening to validation"))?));
        }
        Ok(Self(Arc::new(shared)))
    }

    /// Whether validation layers watch.
    pub fn is_validated(&self) -> bool {
        self.0.messenger.is_some()
    }

    /// What validation layers said since the last time.
    pub fn complaints(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.heard.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All devices, in the loader's order.
    ///
    /// # Errors
    /// [`VulkanError::NoDevice`] where there is none, and faults of drivers.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>, VulkanError> {
        Ok(self.found()?.into_iter().map(|found| found.info).collect())
    }

    fn found(&self) -> Result<Vec<Found>, VulkanError> {
        // SAFETY: the instance is alive.
        let all = unsafe { self.0.raw.enumerate_physical_devices() };
        let all = match all {
            // What the loader says when its drivers cannot be opened.
            Err(vk::Result::ERROR_INITIALIZATION_FAILED) => vec![],
            all => all.map_err(VulkanError::call("Vulkan", "listing devices"))?,
        };
        if all.is_empty() {
            return Err(VulkanError::NoDevice {
                why: "the Vulkan library and a driver are here, but it has no device".to_owned(),
            });
        }
        Ok(all.into_iter().enumerate().map(|(index, device)| Found::new(&self.0, index, device)).collect())
    }

    /// Opens a device by its number, or the best: a discrete GPU before an integrated one, and a CPU under a driver last.
    ///
    /// # Errors
    /// [`VulkanError::NoSuchDevice`], [`VulkanError::Version`] for a device too old, and faults of its driver.
    pub fn open(&self, index: Option<usize>) -> Result<Vulkan, VulkanError> {
        self.open_by(|devices| match index {
            Some(index) => Some(index),
            None => devices.iter().min_by_key(|d| (d.api < NEEDED, d.kind)).map(|d| d.index),
        })
    }

    /// Opens the device whose number is chosen from all.
    ///
    /// # Errors
    /// As [`Instance::open`]; [`VulkanError::NoDevice`] where none is chosen.
    pub fn open_by(
        &self,
        choose: impl FnOnce(&[DeviceInfo]) -> Option<usize>,
    ) -> Result<Vulkan, VulkanError> {
        let mut found = self.found()?;
        let devices: Vec<DeviceInfo> = found.iter().map(|f| f.info.clone()).collect();
        let index = choose(&devices).ok_or_else(|| VulkanError::NoDevice {
            why: "none is of the kind that is asked for".to_owned(),
        })?;
        if index >= found.len() {
            let devices = devices.iter().map(|d| format!("{} {}", d.index, d.name)).collect();
            return Err(VulkanError::NoSuchDevice { index, devices });
        }
        Vulkan::open(Arc::clone(&self.0), found.swap_remove(index))
    }

    /// Opens the first software device, or the first at all.
    ///
    /// # Errors
    /// As [`Instance::open`].
    pub fn open_software(&self) -> Result<Vulkan, VulkanError> {
        self.open_by(|devices| devices.iter().min_by_key(|d| d.kind != DeviceKind::Cpu).map(|d| d.index))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: devices hold this, so none is left, and nobody else destroys these.
        unsafe {
            if let Some((debug, messenger)) = self.messenger.take() {
                debug.destroy_debug_utils_messenger(messenger, None);
            }
            self.raw.destroy_instance(None);
        }
    }
}
