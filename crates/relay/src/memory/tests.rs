//! Accounting of shares, and eviction under memory pressure.

use media::{CacheLimits, GopCache, Kind, Tag};

use super::*;
use crate::tests::{Bell, pull, settings, tag};
use crate::{Publisher, Refusal, Registry, Settings, Start, Viewer};

#[test]
fn the_level_keeps_small_shares_whole_and_equalizes_large_ones() {
    assert_eq!(water_level(vec![], 10), NO_LEVEL);
    assert_eq!(water_level(vec![3, 7], 10), NO_LEVEL);
    assert_eq!(water_level(vec![1, 8, 9], 10), 4);
    assert_eq!(water_level(vec![9, 9, 9], 10), 3);
    assert_eq!(water_level(vec![u64::MAX, 1], 10), 9);
    // For random shares, the level fits, and one more byte per share would not.
    let mut seed = 1u64;
    for round in 0..1_000 {
        let mut shares = Vec::new();
        for _ in 0..round % 17 + 1 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shares.push(seed >> 44);
        }
        let room = shares.iter().sum::<u64>() / (round % 5 + 1);
        let level = water_level(shares.clone(), room);
        let under = |level: u64| shares.iter().map(|share| level.min(*share)).sum::<u64>();
        assert!(under(level) <= room, "{shares:?} in {room}");
        if level != NO_LEVEL {
            assert!(under(level + 1) > room, "{shares:?} in {room}");
            assert!(level >= room / shares.len() as u64);
        }
    }
}

#[test]
fn accounts_add_up_and_release_on_drop() {
    let memory = Arc::new(Memory::default());
    let shares = [Share::new(&memory), Share::new(&memory)];
    let mut accounts = [shares[0].account(), shares[0].account(), shares[1].account()];
    for (account, bytes) in accounts.iter_mut().zip([10, 20, 30]) {
        assert_eq!(account.set(bytes), None);
    }
    assert_eq!((shares[0].held(), shares[1].held(), memory.held()), (30, 30, 60));
    assert_eq!(accounts[1].set(5), None);
    assert_eq!((shares[0].held(), memory.held()), (15, 45));
    drop(accounts);
    assert_eq!((shares[0].held(), memory.held()), (0, 0));
}

#[test]
fn two_holders_get_half_each_unless_one_needs_less() {
    let memory = Arc::new(Memory::default());
    memory.level.store(100, Ordering::Relaxed);
    memory.cuts.store(true, Ordering::Relaxed);
    let share = Share::new(&memory);
    let (mut cache, mut packager) = (share.account(), share.account());
    assert_eq!(cache.set(80), None);
    assert_eq!(packager.set(30), None, "below its half");
    assert_eq!(cache.set(80), Some(Surplus::Beyond(70)));
    cache.shrink(70);
    assert_eq!(packager.set(60), Some(Surplus::Beyond(50)));
    packager.shrink(50);
    assert_eq!(cache.set(70), Some(Surplus::Beyond(50)));
    cache.shrink(50);
    assert_eq!((share.held(), memory.count_of(Event::Shrunk)), (100, 3));
}

/// A key frame or inter frame of `size` bytes.
fn large(key: bool, time: u32, size: usize) -> Tag {
    let mut payload = vec![0; size];
    payload[..5].copy_from_slice(&[if key { 0x17 } else { 0x27 }, 1, 0, 0, 0]);
    tag(Kind::Video, time, &payload)
}

/// Publishes groups of `frames` frames of 10 kB, starting at `time`.
fn fill(publisher: &Publisher, groups: u32, frames: u32, time: u32) {
    for number in 0..groups * frames {
        let key = number.is_multiple_of(frames);
        assert!(publisher.push(large(key, time + number * 40, 10_000)));
    }
}

fn within(bytes: u64) -> Registry {
    let registry = Registry::new(100);
    registry.memory().set_limit(bytes);
    registry
}

fn groups(publisher: &Publisher) -> usize {
    publisher.stream().with_cache(|cache| cache.groups().count())
}

fn held(publisher: &Publisher) -> u64 {
    publisher.stream().memory().held()
}

fn keep(registry: &Registry) {
    registry.enforce_memory_limit(|| {});
}

fn many_groups() -> Settings {
    Settings { cache: CacheLimits { groups: 20, bytes: 1 << 30 }, ..settings() }
}

#[test]
fn ended_streams_count_while_viewers_hold_them() {
    let registry = within(1 << 30);
    let a = registry.publish("live/a", settings()).expect("no publisher");
    let b = registry.publish("live/b", settings()).expect("no publisher");
    fill(&a, 1, 10, 0);
    fill(&b, 1, 20, 0);
    assert!((100_000..110_000).contains(&held(&a)) && (200_000..220_000).contains(&held(&b)));
    assert_eq!(registry.memory().held(), held(&a) + held(&b));
    let viewer = Viewer::new(a.stream().clone(), Start::LatestGop).expect("below the limit");
    let stream = a.stream().clone();
    drop(a);
    registry.end(&stream);
    drop(stream);
    assert!(registry.memory().held() > held(&b), "its viewer can still read it");
    drop(viewer);
    assert_eq!(registry.memory().held(), held(&b));
    registry.end(b.stream());
    drop(b);
    assert_eq!(registry.memory().held(), 0);
}

#[test]
fn a_large_stream_shrinks_and_a_small_one_keeps_its_groups() {
    let registry = within(1_000_000);
    let small = registry.publish("live/small", many_groups()).expect("no publisher");
    let large = registry.publish("live/large", many_groups()).expect("no publisher");
    fill(&small, 3, 10, 0);
    let before = held(&small);
    assert!(before > 300_000 && before < 375_000, "below half of three quarters");
    // Shrinking happens in parallel to publishing.
    for round in 0..20 {
        fill(&large, 1, 15, round * 600);
        keep(&registry);
        let memory = registry.memory();
        assert!(memory.held() <= memory.limit(), "{}", memory.held());
        assert!(!memory.is_full(), "shrinking the large stream suffices");
    }
    assert_eq!((held(&small), groups(&small)), (before, 3));
    assert!((1..=4).contains(&groups(&large)), "{}", groups(&large));
    assert!(registry.memory().count_of(Event::Shrunk) > 0);
    let start = large.stream().with_cache(|cache| cache.groups().next().expect("one").start);
    assert_eq!(large.stream().with_cache(GopCache::base), start, "starts with a key frame");
}

#[test]
fn without_room_new_streams_are_rejected_and_old_ones_stay_playable() {
    let registry = within(1_000_000);
    let streams =
        ["a", "b", "c"].map(|name| registry.publish(name, settings()).expect("no publisher"));
    streams.iter().for_each(|stream| fill(stream, 1, 31, 0));
    keep(&registry);
    assert!(registry.memory().is_full());
    let refused = registry.publish("d", settings()).expect_err("no room");
    assert_eq!(refused, Refusal::NoMemory);
    assert_eq!(refused.to_string(), "no memory is left for another stream");
    assert_eq!((registry.memory().count_of(Event::Refused), registry.len()), (1, 3));
    for publisher in &streams {
        let mut viewer =
            Viewer::new(publisher.stream().clone(), Start::LatestGop).expect("below the limit");
        assert_eq!(pull(&mut viewer).len(), 31, "from the key frame on");
    }
    // A returning publisher does not need a new stream.
    let [a, b, c] = streams;
    let kept = a.stream().clone();
    drop(a);
    let a = registry.publish("a", settings()).expect("its own stream");
    assert!(Arc::ptr_eq(a.stream(), &kept));
    // An ended stream makes room for others.
    registry.end(b.stream());
    drop(b);
    keep(&registry);
    assert!(!registry.memory().is_full());
    registry.publish("d", settings()).expect("room again");
    drop(c);
}

#[test]
fn an_endless_group_is_cut_to_its_share_without_affecting_others() {
    let registry = within(1_000_000);
    let honest = registry.publish("live/honest", settings()).expect("no publisher");
    fill(&honest, 2, 15, 0);
    let before = held(&honest);
    assert!(before < 500_000);
    let greedy = registry.publish("live/greedy", settings()).expect("no publisher");
    assert!(greedy.push(large(true, 0, 10_000)));
    let mut cut = false;
    for number in 1..1_000 {
        assert!(greedy.push(large(false, number * 40, 10_000)));
        if number.is_multiple_of(3) {
            keep(&registry);
        }
        let memory = registry.memory();
        assert!(memory.held() <= 1_030_000, "{number}: {}", memory.held());
        cut |= groups(&greedy) == 0;
        assert!(!cut || memory.is_full(), "{number}");
    }
    assert!(cut && held(&greedy) >= 490_000, "{}", held(&greedy));
    assert_eq!((held(&honest), groups(&honest)), (before, 2), "below its share");
    // Viewers can join again at its next key frame.
    assert!(greedy.push(large(true, 40_000, 10_000)));
    assert_eq!(groups(&greedy), 1);
}

#[test]
fn the_memory_task_is_woken_once_until_it_polls_again() {
    let registry = within(1_000_000);
    let count = Arc::new(Bell::default());
    let waker = Waker::from(count.clone());
    let context = &mut Context::from_waker(&waker);
    let memory = registry.memory().clone();
    assert!(memory.poll_pressed(context).is_pending());
    let publisher = registry.publish("live/a", many_groups()).expect("no publisher");
    fill(&publisher, 8, 10, 0);
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    fill(&publisher, 2, 10, 4_000);
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "not once per tag");
    assert!(memory.poll_pressed(context).is_ready());
    keep(&registry);
    assert!(memory.poll_pressed(context).is_pending());
    // There is room again, so the level no longer applies.
    keep(&registry);
    fill(&publisher, 8, 10, 5_000);
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
}

#[test]
fn memory_of_ended_streams_is_reclaimed() {
    let registry = within(1_000_000);
    let over = registry.publish("live/over", many_groups()).expect("no publisher");
    fill(&over, 7, 10, 0);
    let stream = over.stream().clone();
    drop(over);
    registry.end(&stream);
    let live = registry.publish("live/a", many_groups()).expect("no publisher");
    fill(&live, 3, 10, 0);
    keep(&registry);
    assert!(stream.memory().held() < 500_000, "{}", stream.memory().held());
    assert_eq!(groups(&live), 3);
}
