//! What `--device` may say, and what there is.

use hanzo_cpu::isa::{CpuConfig, Isa};
use hanzo_vulkan::{DeviceInfo, Instance, Options, VulkanError};
use serde_json::{Value, json};

use crate::error::BenchError;

/// A device as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The processor.
    Cpu,
    /// A Vulkan device by its number, or the best.
    Vulkan(Option<usize>),
    /// None: what there is.
    List,
}

impl Asked {
    /// Of `cpu`, `vulkan`, `vulkan:N` or `list`.
    ///
    /// # Errors
    /// For anything else, with what there is.
    pub fn parse(text: &str) -> Result<Self, BenchError> {
        match text.split_once(':') {
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "vulkan" => Ok(Self::Vulkan(None)),
            None if text == "list" => Ok(Self::List),
            Some(("vulkan", number)) => number.parse().map(|n| Self::Vulkan(Some(n))).map_err(|_| {
                BenchError::Asked(format!(
                    "--device {text}: a number follows the colon, as in vulkan:0 (--device list shows them)"
                ))
            }),
            _ => {
                let kind = text.split(':').next().unwrap_or_default();
                let why = match kind {
                    "cuda" | "hip" | "rocm" | "metal" => "this version has no such devices yet; ",
                    _ => "",
                };
                Err(BenchError::Asked(format!(
                    "there is no device `{text}`; {why}there are: cpu, and for --roofline vulkan and vulkan:N (--device list shows them)"
                )))
            }
        }
    }
}

/// The CPU's configuration for a model: the environment's, and over it what was asked for.
///
/// # Errors
/// For devices that run no models, and no threads.
pub fn cpu_config(device: &str, threads: Option<usize>) -> Result<CpuConfig, BenchError> {
    match Asked::parse(device)? {
        Asked::Cpu => {}
        Asked::Vulkan(_) => {
            return Err(BenchError::Asked(format!(
                "--device {device} runs no models yet: there is the cpu; --roofline measures what {device} can do"
            )));
        }
        Asked::List => return Err(BenchError::Asked("--device list is no device".to_owned())),
    }
    if threads == Some(0) {
        return Err(BenchError::Asked("at least 1 thread is needed".to_owned()));
    }
    let config = CpuConfig::from_env()?;
    Ok(CpuConfig { threads: threads.or(config.threads), ..config })
}

/// All devices of this machine.
#[derive(Debug)]
pub struct Devices {
    isa: &'static str,
    cores: usize,
    vulkan: Result<Vec<DeviceInfo>, VulkanError>,
}

impl Devices {
    /// Looks for them.
    pub fn find() -> Self {
        Self {
            isa: Isa::best().name(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            vulkan: Instance::new(&Options::default()).and_then(|instance| instance.devices()),
        }
    }

    /// A line each.
    pub fn to_text(&self) -> String {
        let mut out = format!("{:10}  {} threads, {}\n", "cpu", self.cores, self.isa);
        match &self.vulkan {
            Ok(devices) => {
                for d in devices {
                    out.push_str(&format!("{:10}  {}\n", format!("vulkan:{}", d.index), describe(d)));
                }
            }
            Err(e) => out.push_str(&format!("{:10}  none: {e}\n", "vulkan")),
        }
        out
    }

    /// As an object: `devices`, and `no_vulkan` with the reason where there is no Vulkan device.
    pub fn to_json(&self) -> Value {
        let mut devices = vec![json!({ "device": "cpu", "threads": self.cores, "isa": self.isa })];
        let mut out = json!({});
        match &self.vulkan {
            Ok(all) => devices.extend(
                all.iter().map(|d| json!({ "device": format!("vulkan:{}", d.index), "vulkan": to_json(d) })),
            ),
            Err(e) => out = json!({ "no_vulkan": e.to_string() }),
        }
        if let Some(fields) = out.as_object_mut() {
            fields.insert("devices".to_owned(), devices.into());
        }
        out
    }
}

/// A device in a line.
pub fn describe(d: &DeviceInfo) -> String {
    format!(
        "{} ({}, {:.1} GiB), {}, Vulkan {}",
        d.name,
        d.kind.name(),
        d.memory_bytes as f64 / f64::from(1 << 30),
        d.driver,
        d.api
    )
}

/// What a device says of itself, for samples.
pub fn to_json(d: &DeviceInfo) -> Value {
    json!({
        "index": d.index,
        "name": d.name,
        "kind": d.kind.key(),
        "driver": d.driver,
        "api": d.api.to_string(),
        "subgroup": d.subgroup,
        "memory_bytes": d.memory_bytes,
        "max_buffer_bytes": d.max_buffer_bytes,
        "dot_instruction": d.has_dot_instruction,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_by_kind_and_number() {
        assert_eq!(Asked::parse("cpu").unwrap(), Asked::Cpu);
        assert_eq!(Asked::parse("vulkan").unwrap(), Asked::Vulkan(None));
        assert_eq!(Asked::parse("vulkan:12").unwrap(), Asked::Vulkan(Some(12)));
        assert_eq!(Asked::parse("list").unwrap(), Asked::List);
        for text in ["vulkan:", "vulkan:-1", "vulkan:x", "vulkan:99999999999999999999", "vulkan:0:1"] {
            let e = Asked::parse(text).unwrap_err().to_string();
            assert!(e.contains(text) && e.contains("vulkan:0"), "{e}");
        }
        for text in ["cuda", "cuda:0", "hip", "rocm", "metal"] {
            let e = Asked::parse(text).unwrap_err().to_string();
            assert!(e.contains(text) && e.contains("yet") && e.contains("cpu"), "{e}");
        }
        for text in ["", ":", "cpu:0", "Vulkan", "tpu", "list:1"] {
            let e = Asked::parse(text).unwrap_err().to_string();
            assert!(e.contains("there is no device") && e.contains("vulkan:N"), "{e}");
        }
    }
}
