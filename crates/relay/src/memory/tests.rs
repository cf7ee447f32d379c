//! What streams may keep, by shares and accounts and by streams with their viewers.

use media::{GopCache, Kind, Limits, Tag};

use super::*;
use crate::tests::{Bell, pull, settings, tag};
use crate::{Publisher, Refusal, Registry, Settings, Start, Viewer};

#[test]
fn small_shares_are_whole_under_the_level_and_large_ones_are_equal() {
    assert_eq!(water_level(vec![], 10), NO_LEVEL);
    assert_eq!(water_level(vec![3, 7], 10), NO_LEVEL);
    assert_eq!(water_level(vec![1, 8, 9], 10), 4);
    assert_eq!(water_level(vec![9, 9, 9], 10), 3);
    assert_eq!(water_level(vec![u64::MAX, 1], 10), 9);
    // Whatever the shares: what is left under the level fits, and a step more would not.
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
fn accounts_add_up_and_give_back_what_they_held() {
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
fn two_keepers_of_a_stream_have_half_each_unless_one_needs_less() {
    let memory = Arc::new(Memory::default());
    memory.level.store(100, Ordering::Relaxed);
    memory.cuts.store(true, Ordering::Relaxed);
    let share = Share::new(&memory);
    let (mut cache, mut packager) = (share.account(), share.account());
    assert_eq!(cache.set(80), None);
    assert_eq!(packager.set(30), None, "the other one goes first");
    assert_eq!(cache.set(80), Some(Surplus::Beyond(70)));
    cache.shrink(70);
    assert_eq!(packager.set(60), Some(Surplus::Beyond(50)));
    packager.shrink(50);
    assert_eq!(cache.set(70), Some(Surplus::Beyond(50)));
    cache.shrink(50);
    assert_eq!((share.held(), memory.count_of(Event::Shrunk)), (100, 3));
}

/// A key frame, or another, of this many bytes.
fn large(key: bool, time: u32, size: usize) -> Tag {
    let mut payload = vec![0; size];
    payload[..5].copy_from_slice(&[if key { 0x17 } else { 0x27 }, 1, 0, 0, 0]);
    tag(Kind::Video, time, &payload)
}

/// Publishes groups of `frames` frames of 10 kB from `time` on.
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
    registry.keep_within_memory(|| {});
}

fn many_groups() -> Settings {
    Settings { cache: Limits { groups: 20, bytes: 1 << 30 }, ..settings() }
}

#[test]
fn what_streams_keep_is_counted_while_somebody_holds_it() {
    let registry = within(1 << 30);
    let a = registry.publish("live/a", settings()).expect("free");
    let b = registry.publish("live/b", settings()).expect("free");
    fill(&a, 1, 10, 0);
    fill(&b, 1, 20, 0);
    assert!((100_000..110_000).contains(&held(&a)) && (200_000..220_000).contains(&held(&b)));
    assert_eq!(registry.memory().held(), held(&a) + held(&b));
    let viewer = Viewer::new(a.stream().clone(), Start::LatestGop).expect("room");
    let stream = a.stream().clone();
    drop(a);
    registry.end(&stream);
    drop(stream);
    assert!(registry.memory().held() > held(&b), "its viewer may still read it");
    drop(viewer);
    assert_eq!(registry.memory().held(), held(&b));
    registry.end(b.stream());
    drop(b);
    assert_eq!(registry.memory().held(), 0);
}

#[test]
fn a_large_stream_shrinks_to_its_newest_group_and_a_small_one_keeps_its_own() {
    let registry = within(1_000_000);
    let small = registry.publish("live/small", many_groups()).expect("free");
    let large = registry.publish("live/large", many_groups()).expect("free");
    fill(&small, 3, 10, 0);
    let before = held(&small);
    assert!(before > 300_000 && before < 375_000, "below half of three quarters");
    // Whenever there is too much: the publishers' threads do not wait for anybody.
    for round in 0..20 {
        fill(&large, 1, 15, round * 600);
        keep(&registry);
        let memory = registry.memory();
        assert!(memory.held() <= memory.limit(), "{}", memory.held());
        assert!(!memory.is_full(), "there is room by what the large one gave up");
    }
    assert_eq!((held(&small), groups(&small)), (before, 3));
    assert!((1..=4).contains(&groups(&large)), "{}", groups(&large));
    assert!(registry.memory().count_of(Event::Shrunk) > 0);
    let start = large.stream().with_cache(|cache| cache.groups().next().expect("one").start);
    assert_eq!(large.stream().with_cache(GopCache::base), start, "nothing useless is kept");
}

#[test]
fn without_room_new_streams_are_refused_and_old_ones_stay_playable() {
    let registry = within(1_000_000);
    let streams = ["a", "b", "c"].map(|name| registry.publish(name, settings()).expect("free"));
    streams.iter().for_each(|stream| fill(stream, 1, 31, 0));
    keep(&registry);
    assert!(registry.memory().is_full());
    let refused = registry.publish("d", settings()).expect_err("no room");
    assert_eq!(refused, Refusal::NoMemory);
    assert_eq!(refused.to_string(), "no memory is left for another stream");
    assert_eq!((registry.memory().count_of(Event::Refused), registry.len()), (1, 3));
    for publisher in &streams {
        let mut viewer = Viewer::new(publisher.stream().clone(), Start::LatestGop).expect("room");
        assert_eq!(pull(&mut viewer).len(), 31, "from the key frame on");
    }
    // A publisher who comes back is none of a new stream.
    let [a, b, c] = streams;
    let kept = a.stream().clone();
    drop(a);
    let a = registry.publish("a", settings()).expect("its own stream");
    assert!(Arc::ptr_eq(a.stream(), &kept));
    // Room that somebody leaves is there for others.
    registry.end(b.stream());
    drop(b);
    keep(&registry);
    assert!(!registry.memory().is_full());
    registry.publish("d", settings()).expect("room again");
    drop(c);
}

#[test]
fn a_stream_without_end_of_its_group_is_cut_to_its_share_and_others_are_not() {
    let registry = within(1_000_000);
    let honest = registry.publish("live/honest", settings()).expect("free");
    fill(&honest, 2, 15, 0);
    let before = held(&honest);
    assert!(before < 500_000);
    let greedy = registry.publish("live/greedy", settings()).expect("free");
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
    // Its next key frame is a start again.
    assert!(greedy.push(large(true, 40_000, 10_000)));
    assert_eq!(groups(&greedy), 1);
}

#[test]
fn who_waits_for_too_much_is_told_once_until_it_looks_again() {
    let registry = within(1_000_000);
    let count = Arc::new(Bell::default());
    let waker = Waker::from(count.clone());
    let context = &mut Context::from_waker(&waker);
    let memory = registry.memory().clone();
    assert!(memory.poll_pressed(context).is_pending());
    let publisher = registry.publish("live/a", many_groups()).expect("free");
    fill(&publisher, 8, 10, 0);
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    fill(&publisher, 2, 10, 4_000);
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "not for each tag");
    assert!(memory.poll_pressed(context).is_ready());
    keep(&registry);
    assert!(memory.poll_pressed(context).is_pending());
    // There is room again, so that no tag holds the stream down.
    keep(&registry);
    fill(&publisher, 8, 10, 5_000);
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
}

#[test]
fn the_memory_of_streams_that_are_over_is_taken_back_too() {
    let registry = within(1_000_000);
    let over = registry.publish("live/over", many_groups()).expect("free");
    fill(&over, 7, 10, 0);
    let stream = over.stream().clone();
    drop(over);
    registry.end(&stream);
    let live = registry.publish("live/a", many_groups()).expect("free");
    fill(&live, 3, 10, 0);
    keep(&registry);
    assert!(stream.memory().held() < 500_000, "{}", stream.memory().held());
    assert_eq!(groups(&live), 3);
}
