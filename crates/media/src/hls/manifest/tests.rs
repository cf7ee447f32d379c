//! The parser with playlists of all kinds of origins.

use super::*;

fn media(text: &str) -> Media {
    match parse(text.as_bytes(), &mut Deviations::default()) {
        Ok(Manifest::Media(media)) => media,
        other => panic!("no media playlist: {other:?}"),
    }
}

fn master(text: &str) -> Master {
    match parse(text.as_bytes(), &mut Deviations::default()) {
        Ok(Manifest::Master(master)) => master,
        other => panic!("no master playlist: {other:?}"),
    }
}

#[test]
fn media_playlists_are_parsed() {
    let media = media(
        "#EXTM3U\r\n#EXT-X-TARGETDURATION:4\r\n#EXT-X-MEDIA-SEQUENCE:7\n# a comment\n\
         #EXT-X-MAP:URI=\"i,=.mp4\",BYTERANGE=\"10@5\"\n#EXTINF:4,\na.m4s\n\n\
         #EXT-X-DISCONTINUITY\n#EXT-X-BYTERANGE:20@100\n#EXTINF:3.9,t\nb.m4s\n\
         #EXT-X-BYTERANGE:30\n#EXTINF:3,\nb.m4s\n#EXT-X-GAP\n#EXTINF:3,\nc\n#EXT-X-ENDLIST\n",
    );
    assert_eq!(
        (media.target, media.sequence, media.ended),
        (Duration::from_secs(4), Some(7), true)
    );
    let ranges: Vec<_> = media.entries.iter().map(|entry| entry.resource.range).collect();
    assert_eq!(ranges, [None, Some((100, 20)), Some((120, 30)), None]);
    let breaks: Vec<_> = media.entries.iter().map(|e| (e.discontinuity, e.gap)).collect();
    assert_eq!(breaks, [(false, false), (true, false), (false, false), (false, true)]);
    let map = media.entries[3].map.as_deref().expect("a map");
    assert_eq!((&map.uri[..], map.range), ("i,=.mp4", Some((5, 10))));
}

#[test]
fn master_playlists_are_parsed() {
    let text = "#EXTM3U\n#EXT-X-STREAM-INF:CODECS=\"a,BANDWIDTH=1\",BANDWIDTH=900\nhi\n\
                #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=1,URI=\"x\"\n\
                #EXT-X-STREAM-INF:BANDWIDTH=100\nlo\n";
    let variants = master(text).variants;
    let bandwidths: Vec<_> = variants.iter().map(|v| (&v.uri[..], v.bandwidth)).collect();
    assert_eq!(bandwidths, [("hi", 900), ("lo", 100)]);
    assert_eq!(
        (&variants[0].codecs[..], variants[1].codecs.len()),
        (&["a".into(), "BANDWIDTH=1".into()][..], 0)
    );
}

#[test]
fn audio_renditions_are_parsed() {
    let all = master(
        "#EXTM3U
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"own\",NAME=\"English\",LANGUAGE=\"en\",\
         URI=\"e\",AUTOSELECT=yes
\
         #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"in\",NAME=\"e\",DEFAULT=YES
\
         #EXT-X-MEDIA:TYPE=AUDIO,NAME=\"no group\",URI=\"f\"
\
         #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"text\",NAME=\"e\",URI=\"t\"
\
         #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"own\"
a
\
         #EXT-X-STREAM-INF:BANDWIDTH=1,SUBTITLES=\"text\"
c
",
    );
    let groups: Vec<_> = all.variants.iter().map(|v| v.audio_group.as_deref()).collect();
    assert_eq!(groups, [Some("own"), None]);
    let [own, within] = &all.audio[..] else { panic!("{:?}", all.audio) };
    assert_eq!((&own.group[..], &own.name[..], own.uri.as_deref()), ("own", "English", Some("e")));
    assert_eq!(
        (own.language.as_deref(), own.is_default, own.is_automatic),
        (Some("en"), false, true)
    );
    assert_eq!(
        (within.uri.as_deref(), within.is_default, within.is_automatic),
        (None, true, false)
    );
}

#[test]
fn malformed_playlists_are_rejected() {
    let refused =
        |text: &str| parse(text.as_bytes(), &mut Deviations::default()).expect_err("rejected");
    assert_eq!(refused(""), Error::Playlist);
    assert_eq!(refused("<html>"), Error::Playlist);
    assert_eq!(refused("#EXTM3U\n"), Error::Playlist, "neither segments nor variants");
    let sequence = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:";
    assert_eq!(refused(&format!("{sequence}{}", 1_u64 << 62)), Error::Playlist);
    assert_eq!(refused(&format!("{sequence}-1")), Error::Playlist);
    assert_eq!(refused("#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\""), Error::Encrypted);
    let first = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n#EXT-X-BYTERANGE:5\na";
    assert_eq!(refused(first), Error::Playlist, "a range after nothing");
    assert_eq!(refused(&" ".repeat(MAX_PLAYLIST + 1)), Error::TooLarge);
    assert_eq!(parse(&[b'#', 0xff], &mut Deviations::default()), Err(Error::Playlist));
}

#[test]
fn duration_formats_are_accepted() {
    for (target, inf, millis, deviates) in [
        ("#EXT-X-TARGETDURATION:2", "2.0,", 2_000, false),
        ("#EXT-X-TARGETDURATION:2.0", "2.0,", 2_000, false),
        ("#EXT-X-TARGETDURATION: 2", "2", 2_000, false),
        ("#EXT-X-TARGETDURATION:2.002", "2.0,", 2_002, true),
        ("#EXT-X-TARGETDURATION:2,5", "2.0,", 2_500, true),
        ("#EXT-X-TARGETDURATION:0", "2.004,title", 2_004, true),
        ("#EXT-X-TARGETDURATION:-1", "2,004,title", 2_004, true),
        ("#EXT-X-TARGETDURATION:two", "4,2 titles", 4_000, true),
        ("#EXT-X-TARGETDURATION:", "4, 2", 4_000, true),
        ("#EXT-X-TARGETDURATION:NaN", "4", 4_000, true),
        ("#EXT-X-VERSION:3", "4.5", 4_500, true),
        ("#EXT-X-VERSION:3", "", 2_000, true),
        ("#EXT-X-VERSION:3", "-1,", 2_000, true),
        ("#EXT-X-TARGETDURATION:1e300", "1,", 1_000, true),
        ("#EXT-X-TARGETDURATION:99999999999999999999", "1,", 86_400_000, false),
    ] {
        let mut seen = Deviations::default();
        let text = format!("#EXTM3U\n{target}\n#EXTINF:{inf}\na.ts\n");
        let Ok(Manifest::Media(media)) = parse(text.as_bytes(), &mut seen) else {
            panic!("{text}")
        };
        assert_eq!(media.target, Duration::from_millis(millis), "{text}");
        assert_eq!(media.entries.len(), 1);
        let expected = [(Deviation::PlaylistTarget, 1)];
        assert_eq!(seen.take().collect::<Vec<_>>(), &expected[..usize::from(deviates)], "{text}");
    }
}

#[test]
fn line_and_attribute_syntax_variants_are_accepted() {
    let plain = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:18014398509481985\n\
                 #EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"10@5\"\n#EXTINF:2.0,\na.m4s?x=1&y=a:b\n\
                 #EXTINF:2.0,\n//cdn.example/b.m4s\n";
    let expected = media(plain);
    assert_eq!(expected.sequence, Some(18_014_398_509_481_985));
    for text in [
        plain.replace('\n', "\r\n"),
        plain.replace('\n', "\r"),
        plain.replace('\n', " \n\n \t\n"),
        format!("\u{feff}{plain}"),
        format!("\n\n{plain}"),
        plain.replace(":2", ": 2").replace("INF:2.0,", "INF: 2.0 , title"),
        plain.replace("EXT-X", "ext-x").replace("MAP:URI", "map:uri"),
        plain.replace("URI=", "X, OLD=1 , uri = ").replace(",BYTE", " , ByteRange = \"1@1\", BYTE"),
        plain.replace("#EXTINF", "#EXT-X-UNKNOWN:a=\"\n#EXTINF"),
        plain.replace("#EXTINF", "# a comment: \u{e9}t\u{e9}\n#EXTINF"),
    ] {
        let mut got = media(&text);
        // The first of two attributes with the same name applies.
        if text.contains("1@1") {
            let map = got.entries[0].map.as_deref().expect("a map");
            assert_eq!((&map.uri[..], map.range), ("i.mp4", Some((1, 1))), "{text}");
            got.entries
                .iter_mut()
                .zip(&expected.entries)
                .for_each(|(a, b)| a.map.clone_from(&b.map));
        }
        assert_eq!(got, expected, "{text}");
    }
    let latin: Vec<u8> = plain
        .replace("#EXTINF", "#?\n#EXTINF")
        .bytes()
        .map(|b| if b == b'?' { 0xe9 } else { b })
        .collect();
    let mut seen = Deviations::default();
    let Ok(Manifest::Media(got)) = parse(&latin, &mut seen) else { panic!("no playlist") };
    assert_eq!(got.entries.len(), 2);
    assert_eq!(seen.take().collect::<Vec<_>>(), [(Deviation::PlaylistText, 1)]);
    assert!(media("#EXTM3U\n#EXT-X-KEY:method=none\n#EXTINF:1\na").sequence.is_none());
    let mut seen = Deviations::default();
    let text = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:x\n#EXTINF:2,\na";
    parse(text.as_bytes(), &mut seen).expect("the sequence is ignored");
    assert_eq!(seen.take().collect::<Vec<_>>(), [(Deviation::PlaylistTag, 1)]);
    assert_eq!(media(&text.replace(":x", ":7.0")).sequence, Some(7));
}
