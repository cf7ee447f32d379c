//! Memory available to the process: the machine's, or less within a control group (cgroups(7)).

use std::path::{Component, Path};

/// Default in bytes if the system reports nothing.
const DEFAULT_MEMORY: u64 = 2 << 30;

/// Returns the memory available to this process, in bytes.
pub(crate) fn memory() -> u64 {
    memory_below(Path::new("/"))
}

/// Like [`memory`], for a file system at `root`.
fn memory_below(root: &Path) -> u64 {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let groups = read("proc/self/cgroup");
    let bounds = groups.lines().filter_map(|line| bound_of_group(root, line));
    bounds.chain(of_machine(&read("proc/meminfo"))).min().unwrap_or(DEFAULT_MEMORY)
}

/// Parses proc_meminfo(5). Its "kB" are KiB.
fn of_machine(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(total.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Returns the smallest limit of a control group and its ancestors. `line` is from
/// `/proc/self/cgroup`: `0::PATH` in version 2, `N:CONTROLLERS:PATH` in version 1.
fn bound_of_group(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let path = Path::new(path.trim_start_matches('/'));
    // For a path outside the visible namespace, fall back to the root.
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    let path = if is_inside { path } else { Path::new("") };
    let bound = |group: &Path| {
        // "max" stands for no limit.
        let text = std::fs::read_to_string(root.join(mount).join(group).join(file)).ok()?;
        text.trim().parse().ok()
    };
    path.ancestors().filter_map(bound).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory_with(files: &[(&str, &str)]) -> u64 {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (path, content) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, content).expect("written");
        }
        memory_below(dir.path())
    }

    const MACHINE: (&str, &str) =
        ("proc/meminfo", "MemTotal:       16000000 kB\nMemFree:        1 kB\n");

    #[test]
    fn machine_memory_applies_without_control_groups() {
        assert_eq!(memory_with(&[MACHINE]), 16_000_000 << 10);
        assert_eq!(memory_with(&[]), DEFAULT_MEMORY);
        let unbounded = ("sys/fs/cgroup/a/memory.max", "max\n");
        assert_eq!(
            memory_with(&[MACHINE, ("proc/self/cgroup", "0::/a\n"), unbounded]),
            16_000_000 << 10
        );
    }

    #[test]
    fn tightest_control_group_applies() {
        let own = ("proc/self/cgroup", "0::/system.slice/mendcast.service\n");
        let service = ("sys/fs/cgroup/system.slice/mendcast.service/memory.max", "max\n");
        let slice = ("sys/fs/cgroup/system.slice/memory.max", "4096000\n");
        assert_eq!(memory_with(&[MACHINE, own, service, slice]), 4_096_000);
        // In a container with its own namespace.
        let container = ("sys/fs/cgroup/memory.max", "1048576\n");
        assert_eq!(memory_with(&[MACHINE, ("proc/self/cgroup", "0::/\n"), container]), 1 << 20);
        let outside = ("proc/self/cgroup", "0::/../../other\n");
        assert_eq!(memory_with(&[MACHINE, outside, container]), 1 << 20);
    }

    #[test]
    fn version_1_uses_the_memory_hierarchy() {
        let own = ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1\n0::/\n");
        let other = ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1\n");
        let limit = ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "2097152\n");
        assert_eq!(memory_with(&[MACHINE, own, other, limit]), 2 << 20);
        let none = ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(memory_with(&[MACHINE, own, none]), 16_000_000 << 10);
    }
}
