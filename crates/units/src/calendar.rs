//! Dates in UTC. Days are counted in eras of 400 years that start in March, so that a leap day is
//! the last of its year.

/// Days from 1 March of year 0 to 1 January 1970.
const EPOCH: i64 = 719_468;
/// Days of 400 years.
const ERA: i64 = 146_097;

/// Formats milliseconds since 1970 as an ISO 8601 date and time, such as
/// `2026-11-28T09:48:47.000Z`.
///
/// ```
/// assert_eq!(units::date_time(951_782_400_000), "2000-02-29T00:00:00.000Z");
/// ```
pub fn date_time(ms: i64) -> String {
    let (days, ms) = (ms.div_euclid(86_400_000) + EPOCH, ms.rem_euclid(86_400_000));
    let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next_year;
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    let ms = ms % 1_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Parses year to second of `20261128T094847` or `20261128094847`. Returns milliseconds since 1970;
/// `None` for other texts, and for dates that the calendar does not have.
pub fn parse_compact_date(text: &str) -> Option<i64> {
    let (date, time) = text.split_at_checked(8)?;
    let time = time.strip_prefix('T').unwrap_or(time);
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if time.len() != 6 || !is_number(date) || !is_number(time) {
        return None;
    }
    let number = |text: &str| text.parse::<i64>().ok();
    let (full_year, month, day) = (number(&date[..4])?, number(&date[4..6])?, number(&date[6..])?);
    let (hour, minute, second) = (number(&time[..2])?, number(&time[2..4])?, number(&time[4..])?);
    let (year, march) = if month > 2 { (full_year, month - 3) } else { (full_year - 1, month + 9) };
    let of_era = year.rem_euclid(400);
    let day_of_year = (153 * march + 2) / 5 + day - 1;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
    let days = year.div_euclid(400) * ERA + day_of_era - EPOCH;
    let ms = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000;
    // A day, hour or minute that does not exist becomes another date.
    let own = format!("{full_year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z");
    (date_time(ms) == own).then_some(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar_in_both_directions() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1_000, "1969-12-31T23:59:59.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_000, "2024-02-29T23:59:59.000Z"),
            (2_147_483_648_000, "2038-01-19T03:14:08.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_000, "9999-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(date_time(ms), text);
            let digits: String = text[..19].chars().filter(char::is_ascii_digit).collect();
            assert_eq!(parse_compact_date(&digits), Some(ms), "{text}");
            let split = format!("{}T{}", &digits[..8], &digits[8..]);
            assert_eq!(parse_compact_date(&split), Some(ms), "{text}");
        }
        assert_eq!(date_time(1_709_251_199_999), "2024-02-29T23:59:59.999Z");
    }

    #[test]
    fn other_texts_are_no_dates() {
        for text in [
            "",
            "2024022912000",
            "2024022912000x",
            "20240229T12000",
            "20241301000000",
            "20230229000000",
            "20261131000000",
            "20240229240000",
            "20240229126000",
            "20240229120060",
            "+0240229120000",
            "2024022ü120000",
        ] {
            assert_eq!(parse_compact_date(text), None, "{text}");
        }
    }
}
