//! Windows over recordings that rotate, break off, disappear, and are damaged.

use std::collections::HashMap;
use std::time::Instant;

use super::super::fixture::{SEGMENT_MS, StoredTake};
use super::*;
use crate::record::playlist::init_name;

const HOUR: Duration = Duration::from_secs(3_600);
/// 2026-11-28, 09:00:00.
const T0: i64 = 1_795_856_400_000;
const MINUTE_MS: i64 = 60_000;

/// A segment of a rendered playlist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Listed {
    msn: u64,
    discontinuity: u64,
    is_gap: bool,
}

/// Parses a media playlist as a player does. Returns its segments by URI, in order.
fn parsed(text: &str) -> Vec<(String, Listed)> {
    let mut next = Listed { msn: 0, discontinuity: 0, is_gap: false };
    let (mut all, mut has_map) = (vec![], false);
    for line in text.lines() {
        let number = |tag| line.strip_prefix(tag).map(|n: &str| n.parse::<u64>().expect("number"));
        if let Some(msn) = number("#EXT-X-MEDIA-SEQUENCE:") {
            next.msn = msn;
        } else if let Some(discontinuity) = number("#EXT-X-DISCONTINUITY-SEQUENCE:") {
            next.discontinuity = discontinuity;
        } else if line == "#EXT-X-DISCONTINUITY" {
            next.discontinuity += 1;
        } else if line == "#EXT-X-GAP" {
            next.is_gap = true;
        } else if line.starts_with("#EXT-X-MAP") {
            has_map = true;
        } else if !line.starts_with('#') {
            assert!(next.is_gap || has_map, "{line}: no initialisation segment");
            all.push((line.to_owned(), next));
            next = Listed { msn: next.msn + 1, is_gap: false, ..next };
        }
    }
    all
}

fn text(window: &mut Window, start_ms: i64, now_ms: i64) -> String {
    window.refresh(now_ms);
    let start_s = (start_ms / 1_000) as u64;
    let rendered = window.playlist(start_s, now_ms, (true, false)).expect("not empty");
    String::from_utf8(rendered.text.to_vec()).expect("text")
}

fn listed(window: &mut Window, start_ms: i64, now_ms: i64) -> Vec<(String, Listed)> {
    parsed(&text(window, start_ms, now_ms))
}

/// An hour that was rotated without discontinuity, then a crash, and a recording in progress.
fn three_takes(folder: &Path) -> [StoredTake; 3] {
    let mut first = StoredTake::new(folder, T0, (0, 0));
    first.add(590);
    first.add_gap();
    first.add(9);
    first.write(true);
    let mut second = StoredTake::new(folder, first.end_ms(), first.end());
    second.add(300);
    let (msn, discontinuity) = second.end();
    let mut third = StoredTake::new(folder, second.end_ms() + 90_000, (msn, discontinuity + 1));
    third.set_init(2);
    third.add(100);
    [first, second, third]
}

#[test]
fn numbers_agree_over_reloads_restarts_and_starts() {
    let scratch = tempfile::tempdir().expect("a directory");
    let folder = scratch.path();
    let [.., mut third] = three_takes(folder);
    let new = || Window::new(folder.to_owned(), HOUR * 2);
    let mut window = new();
    let mut known: HashMap<String, Listed> = HashMap::new();
    let mut now_ms = third.end_ms();
    for step in 0..60 {
        let all = listed(&mut window, 0, now_ms);
        let later = listed(&mut window, now_ms - 50 * MINUTE_MS, now_ms);
        let restarted = listed(&mut new(), 0, now_ms);
        assert_eq!(all, restarted, "step {step}");
        assert!(all.ends_with(&later[..]) && later.len() < all.len(), "step {step}");
        for (uri, listed) in all {
            assert_eq!(*known.entry(uri.clone()).or_insert(listed), listed, "{uri}, step {step}");
        }
        third.add(10);
        now_ms = third.end_ms();
    }
    // Two gaps in the sequence: before and after the missing segment, and after the crash.
    let last = known.values().map(|listed| listed.discontinuity).max();
    assert_eq!(last, Some(3));
    assert_eq!(known.values().filter(|listed| listed.is_gap).count(), 1);
    assert_eq!(known.len(), 600 + 300 + 100 + 590);
}

#[test]
fn playlists_start_where_the_viewer_asked() {
    let scratch = tempfile::tempdir().expect("a directory");
    let [first, second, third] = three_takes(scratch.path());
    let now_ms = third.end_ms();
    let mut window = Window::new(scratch.path().to_owned(), HOUR * 2);
    window.refresh(now_ms);
    let ago = |ms: i64| Duration::from_millis((now_ms - ms) as u64);
    let mut first_of = |start_s: u64| {
        let rendered = window.playlist(start_s, now_ms, (true, false)).expect("not empty");
        let text = String::from_utf8(rendered.text.to_vec()).expect("text");
        let all = parsed(&text);
        (all[0].clone(), all.len())
    };
    // At a rotation: the first segment of the new recording.
    let name = |take: &StoredTake| take.path.file_name().expect("a name").to_owned();
    let name = |take: &StoredTake| name(take).into_string().expect("text");
    let ((uri, at), _) = first_of((second.end_ms() / 1_000 - 1_800) as u64);
    assert_eq!((uri, at.msn), (format!("{}.00000000.m4s", name(&second)), 600));
    // Before the oldest segment, and before 1970 plus a bit: all there is.
    for start_s in [0, (T0 / 1_000 - 7_200) as u64] {
        let ((uri, at), count) = first_of(start_s);
        assert_eq!((uri, at.msn, count), (format!("{}.00000000.m4s", name(&first)), 0, 1_000));
    }
    // In the future: the last segments. Two minutes, a 60th of the window, are rounded down.
    assert_eq!(first_of(u64::MAX).1, MIN_LISTED);
    assert_eq!(first_of(now_ms as u64 / 1_000).1, 15);
    // The position is exact, also between two recordings.
    let entrance = window.enter(ago(T0 + 630_500), now_ms);
    assert_eq!((entrance.start_s as i64, entrance.offset_ms), (T0 / 1_000 + 600, 30_500));
    let entrance = window.enter(ago(second.end_ms() + 45_000), now_ms);
    let played = entrance.offset_ms as i64;
    assert_eq!(entrance.start_s as i64 % 60, 0);
    assert!(played <= 60_000 && played % SEGMENT_MS == 0, "at the next segment: {entrance:?}");
    let entrance = window.enter(HOUR * 1_000, now_ms);
    assert_eq!((entrance.offset_ms, entrance.bandwidth), (0, 12 * 8 * 1_000 / 6_000));
}

#[test]
fn the_clock_may_be_set_back_between_recordings() {
    let scratch = tempfile::tempdir().expect("a directory");
    let folder = scratch.path();
    let mut first = StoredTake::new(folder, T0, (0, 0));
    first.add(600);
    first.write(true);
    // One hour back: the same name, with a number.
    let mut second = StoredTake::new(folder, T0, (600, 1));
    second.add(100);
    let now_ms = second.end_ms();
    let mut window = Window::new(folder.to_owned(), HOUR);
    let all = listed(&mut window, 0, now_ms);
    assert!(all.windows(2).all(|pair| pair[1].1.msn == pair[0].1.msn + 1));
    assert!(all.last().expect("some").0.contains("-2.00000099.m4s"), "{:?}", all.last());
    // The clock showed the same times twice. The window has one hour of media, not two.
    assert_eq!(all.len(), 600);
    let recent = listed(&mut window, now_ms - 5 * MINUTE_MS, now_ms);
    assert_eq!(recent.len(), 50);
}

#[test]
fn missing_files_and_damaged_playlists_become_gaps_or_are_left_out() {
    let scratch = tempfile::tempdir().expect("a directory");
    let folder = scratch.path();
    let [first, second, third] = three_takes(folder);
    let now_ms = third.end_ms();
    fs::remove_file(third.path.join(init_name(2))).expect("removed");
    fs::remove_file(second.path.join("00000007.m4s")).expect("removed");
    let new = || Window::new(folder.to_owned(), HOUR * 3);
    let all = listed(&mut new(), 0, now_ms);
    assert_eq!(all.iter().filter(|(_, listed)| listed.is_gap).count(), 1 + 1 + 100);
    // Half a playlist: its complete entries; the later recordings keep their numbers.
    let path = second.path.join(PLAYLIST);
    let whole = fs::read_to_string(&path).expect("read");
    fs::write(&path, &whole[..whole.len() / 2]).expect("written");
    let half = listed(&mut new(), 0, now_ms);
    assert_eq!(half.last(), all.last());
    assert!(half.len() < all.len());
    // A playlist that somebody edited names nothing outside.
    fs::write(&path, whole.replace("00000009.m4s", "../../../etc/passwd")).expect("written");
    let edited = text(&mut new(), 0, now_ms);
    assert!(!edited.contains("passwd") && !edited.contains("../"), "{edited}");
    for content in
        ["", "nonsense", "#EXTM3U\n", "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:18446744073709551615\n"]
    {
        fs::write(&path, content).expect("written");
        let _ = listed(&mut new(), 0, now_ms);
    }
    fs::write(&path, [0xff, 0xfe, 0]).expect("written");
    let _ = listed(&mut new(), 0, now_ms);
    fs::remove_dir_all(&first.path).expect("removed");
    fs::write(&first.path, "a file in the way").expect("written");
    assert!(!listed(&mut new(), 0, now_ms).is_empty());
}

#[test]
fn removed_recordings_disappear_and_the_others_keep_their_numbers() {
    let scratch = tempfile::tempdir().expect("a directory");
    let folder = scratch.path();
    let [first, second, third] = three_takes(folder);
    let now_ms = third.end_ms();
    let mut window = Window::new(folder.to_owned(), HOUR * 3);
    let all = listed(&mut window, 0, now_ms);
    // Retention: the oldest one.
    fs::remove_dir_all(&first.path).expect("removed");
    let rest = listed(&mut window, 0, now_ms);
    assert_eq!(rest[..], all[600..]);
    assert_eq!(listed(&mut Window::new(folder.to_owned(), HOUR * 3), 0, now_ms), rest);
    // By hand, from the middle: older ones would get other numbers.
    let [.., third_only] = [first, second, third];
    fs::remove_dir_all(folder).expect("removed");
    window.refresh(now_ms);
    assert!(window.is_empty(now_ms) && window.playlist(0, now_ms, (true, false)).is_none());
    let [_, second, _] = three_takes(folder);
    fs::remove_dir_all(&second.path).expect("removed");
    let rest = listed(&mut window, 0, now_ms);
    assert_eq!(rest[..], all[900..], "{:?}", third_only.path);
}

#[test]
fn recordings_of_earlier_versions_follow_each_other() {
    let scratch = tempfile::tempdir().expect("a directory");
    for number in 0..3 {
        let mut take = StoredTake::new(scratch.path(), T0 + number * 10 * MINUTE_MS, (0, 0));
        take.add(100);
        take.write(true);
    }
    let now_ms = T0 + 30 * MINUTE_MS;
    let all = listed(&mut Window::new(scratch.path().to_owned(), HOUR), 0, now_ms);
    let expected: Vec<_> = (0..300).map(|n| (n, n / 100)).collect();
    let found: Vec<_> = all.iter().map(|(_, l)| (l.msn, l.discontinuity)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_playlist_ends_with_the_stream() {
    let scratch = tempfile::tempdir().expect("a directory");
    let [.., mut third] = three_takes(scratch.path());
    let mut window = Window::new(scratch.path().to_owned(), HOUR);
    let mut ends = |is_recorded, now_ms| {
        window.refresh(now_ms);
        let rendered = window.playlist(0, now_ms, (is_recorded, false)).expect("not empty");
        rendered.text.ends_with(b"#EXT-X-ENDLIST\n")
    };
    let now_ms = third.end_ms();
    assert!(!ends(true, now_ms) && !ends(false, now_ms), "unfinished");
    assert!(!ends(true, now_ms + 2 * ABANDONED_MS), "a stream without media");
    assert!(ends(false, now_ms + 2 * ABANDONED_MS), "the server was killed");
    third.add(1);
    third.write(true);
    let now_ms = third.end_ms();
    assert!(!ends(true, now_ms), "rotation");
    assert!(ends(false, now_ms));
}

#[test]
fn only_listed_files_have_a_path() {
    let scratch = tempfile::tempdir().expect("a directory");
    let [first, second, third] = three_takes(scratch.path());
    let now_ms = third.end_ms();
    let mut window = Window::new(scratch.path().to_owned(), Duration::from_secs(1_200));
    window.refresh(now_ms);
    let path = |take: &StoredTake, file: &str| {
        let name = take.path.file_name().and_then(|name| name.to_str()).expect("a name");
        window.path(&RecordedFile::parse(&format!("{name}.{file}")).expect("valid"), now_ms)
    };
    let file = "00000099.m4s";
    assert_eq!(path(&third, file), Some(third.path.join(file)));
    assert_eq!(path(&third, &init_name(2)), Some(third.path.join(init_name(2))));
    assert!(path(&second, "00000299.m4s").is_some());
    assert_eq!(path(&third, "00000100.m4s"), None, "not yet there");
    assert_eq!(path(&third, &init_name(1)), None, "of another recording");
    assert_eq!(path(&second, "00000000.m4s"), None, "before the window");
    assert_eq!(path(&first, "00000000.m4s"), None, "before the window");
}

#[test]
fn unchanged_recordings_are_not_read_again() {
    let scratch = tempfile::tempdir().expect("a directory");
    let [first, .., third] = three_takes(scratch.path());
    let now_ms = third.end_ms();
    let mut window = Window::new(scratch.path().to_owned(), HOUR * 2);
    let before = text(&mut window, 0, now_ms);
    let path = first.path.join(PLAYLIST);
    let (stamp, length) =
        fs::metadata(&path).map(|m| (m.modified().expect("a time"), m.len())).expect("found");
    fs::write(&path, vec![b'x'; length as usize]).expect("written");
    let file = fs::File::options().append(true).open(&path).expect("opened");
    file.set_modified(stamp).expect("set");
    assert!(text(&mut window, 0, now_ms) == before);
    file.set_modified(stamp + Duration::from_secs(1)).expect("set");
    assert_ne!(text(&mut window, 0, now_ms), before);
}

#[test]
fn playlists_of_a_day_are_rendered_within_bounds() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut end = (0, 0);
    for hour in 0..24 {
        let mut take = StoredTake::new(scratch.path(), T0 + hour * 60 * MINUTE_MS, end);
        take.add(600);
        take.write(true);
        end = take.end();
    }
    let now_ms = T0 + 24 * 60 * MINUTE_MS;
    let mut window = Window::new(scratch.path().to_owned(), HOUR * 24);
    let began = Instant::now();
    window.refresh(now_ms);
    let read = began.elapsed();
    // Viewers with different starts.
    for minute in 0..1_440 {
        window.playlist((T0 / 1_000 + minute * 60) as u64, now_ms, (true, false)).expect("some");
        let used: usize =
            window.rendered.iter().map(|(_, one)| one.text.len() + one.packed.len()).sum();
        assert!(window.rendered.len() <= MAX_RENDERED && used <= MAX_RENDERED_BYTES);
    }
    let all = began.elapsed();
    let text = window.playlist(0, now_ms, (true, false)).expect("some");
    let sizes = (text.text.len(), text.packed.len());
    println!("read in {read:?}, with 1,440 playlists {all:?}; bytes: {sizes:?}");
    let known = Instant::now();
    (0..10_000).for_each(|_| drop(window.playlist(0, now_ms, (true, false))));
    assert!(known.elapsed() < all, "cached: {:?}", known.elapsed());
}
