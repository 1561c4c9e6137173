//! How much memory this process may still take.

use std::path::Path;

/// Bytes that can be had without pushing anybody out: what the system calls available, or what the process's control group
/// has left where that is less. `None` where the system does not tell (only Linux does here).
pub fn available_memory() -> Option<u64> {
    let system = meminfo(&read("/proc/meminfo")?)?;
    Some(control_group().map_or(system, |left| left.min(system)))
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The line `MemAvailable:  123 kB`.
fn meminfo(text: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What the control groups (version 2) of this process leave, the tightest of them and those above it.
fn control_group() -> Option<u64> {
    let own = read("/proc/self/cgroup")?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own = Path::new("/sys/fs/cgroup").join(path);
    own.ancestors().take_while(|p| p.starts_with("/sys/fs/cgroup")).filter_map(group_left).min()
}

fn group_left(group: &Path) -> Option<u64> {
    let number = |file| read(group.join(file))?.trim().parse::<u64>().ok();
    // "max" is no number: no bound.
    let bound = number("memory.max")?;
    let used = number("memory.current")?;
    let stat = read(group.join("memory.stat")).unwrap_or_default();
    Some(left(bound, used, &stat))
}

/// Pages of files that were not used lately are given back before anybody is refused.
fn left(bound: u64, used: u64, stat: &str) -> u64 {
    let reclaimable = stat.lines().find_map(|l| l.strip_prefix("inactive_file ")?.trim().parse::<u64>().ok());
    bound.saturating_sub(used.saturating_sub(reclaimable.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_read() {
        let text = "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\nBuffers: 3 kB\n";
        assert_eq!(meminfo(text), Some(2048 * 1024));
        assert_eq!([meminfo(""), meminfo("MemAvailable: x kB"), meminfo("MemAvailable: 5")], [None; 3]);
        assert_eq!(left(100, 70, "anon 9\ninactive_file 20\n"), 50);
        assert_eq!((left(100, 170, ""), left(100, 10, "inactive_file 20\n")), (0, 100));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_tells() {
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
