//! How much memory the process may use: the machine's, or less if a control group (cgroups(7)) says so.

use std::path::{Component, Path};

/// What is assumed where the system says nothing, in bytes.
const UNKNOWN: u64 = 2 << 30;

/// Bytes of memory that this process may use, as far as the system says.
pub(crate) fn memory() -> u64 {
    memory_below(Path::new("/"))
}

/// The same in a file system that begins at `root`.
fn memory_below(root: &Path) -> u64 {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let groups = read("proc/self/cgroup");
    let bounds = groups.lines().filter_map(|line| bound_of_group(root, line));
    bounds.chain(of_machine(&read("proc/meminfo"))).min().unwrap_or(UNKNOWN)
}

/// proc_meminfo(5): in kB, which are KiB.
fn of_machine(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(total.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The least bound of a control group and those around it. `line` is one of `/proc/self/cgroup`:
/// `0::PATH` in version 2, `N:CONTROLLERS:PATH` in version 1.
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
    // Outside of the namespace that we see: its root is the nearest that can be read.
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    let path = if is_inside { path } else { Path::new("") };
    let bound = |group: &Path| {
        // "max" where there is none.
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
    fn the_machines_memory_counts_where_nothing_bounds_it() {
        assert_eq!(memory_with(&[MACHINE]), 16_000_000 << 10);
        assert_eq!(memory_with(&[]), UNKNOWN);
        let unbounded = ("sys/fs/cgroup/a/memory.max", "max\n");
        assert_eq!(
            memory_with(&[MACHINE, ("proc/self/cgroup", "0::/a\n"), unbounded]),
            16_000_000 << 10
        );
    }

    #[test]
    fn the_tightest_control_group_around_the_process_counts() {
        let own = ("proc/self/cgroup", "0::/system.slice/mendcast.service\n");
        let service = ("sys/fs/cgroup/system.slice/mendcast.service/memory.max", "max\n");
        let slice = ("sys/fs/cgroup/system.slice/memory.max", "4096000\n");
        assert_eq!(memory_with(&[MACHINE, own, service, slice]), 4_096_000);
        // In a container with a namespace of its own.
        let container = ("sys/fs/cgroup/memory.max", "1048576\n");
        assert_eq!(memory_with(&[MACHINE, ("proc/self/cgroup", "0::/\n"), container]), 1 << 20);
        let outside = ("proc/self/cgroup", "0::/../../other\n");
        assert_eq!(memory_with(&[MACHINE, outside, container]), 1 << 20);
    }

    #[test]
    fn version_1_has_a_hierarchy_of_memory() {
        let own = ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1\n0::/\n");
        let other = ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1\n");
        let limit = ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "2097152\n");
        assert_eq!(memory_with(&[MACHINE, own, other, limit]), 2 << 20);
        let none = ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(memory_with(&[MACHINE, own, none]), 16_000_000 << 10);
    }
}
