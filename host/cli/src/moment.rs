//! Moments as people write them: `2h` (ago, or from now), `yesterday`, `18:00`, `2026-11-22`, or RFC 3339.

use jiff::civil::{Date, Time};
use jiff::{Span, Timestamp, ToSpan as _, Zoned};

/// Returns the beginning of what the text names, in milliseconds since the Unix epoch. Days begin at midnight where
/// this program runs.
pub(crate) fn since(text: &str) -> Result<u64, String> {
    beginning(text, &Zoned::now()).map(|(from, _)| millis(from))
}

/// Returns the end of what the text names, in milliseconds since the Unix epoch: the end of the day if it names one.
pub(crate) fn until(text: &str) -> Result<u64, String> {
    let now = Zoned::now();
    let (from, whole_day) = beginning(text, &now)?;
    if !whole_day {
        return Ok(millis(from));
    }
    let next =
        from.to_zoned(now.time_zone().clone()).date().tomorrow().and_then(|day| day.to_zoned(now.time_zone().clone()));
    next.map(|next| millis(next.timestamp())).map_err(|error| error.to_string())
}

/// Returns the moment that lies so far in the future, in milliseconds since the Unix epoch.
pub(crate) fn after(duration: &str) -> Result<u64, String> {
    later_by(duration, &Zoned::now()).map(millis)
}

/// Returns the moment in the future that the text names, in milliseconds since the Unix epoch. A time without a day is
/// that of today, where this program runs.
pub(crate) fn future_moment(text: &str) -> Result<u64, String> {
    ahead(text, &Zoned::now()).map(millis)
}

fn later_by(duration: &str, now: &Zoned) -> Result<Timestamp, String> {
    let unclear = || match duration.parse::<u64>() {
        Ok(_) => format!("{duration:?} has no unit; did you mean `{duration}m` or `{duration}h`?"),
        Err(_) => format!("{duration:?} is not a duration; write one such as `90m` or `2h`"),
    };
    let span: Span = duration.parse().map_err(|_| unclear())?;
    let then = now.checked_add(span).map_err(|_| unclear())?;
    if then.timestamp() > now.timestamp() { Ok(then.timestamp()) } else { Err(unclear()) }
}

fn ahead(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let unclear = || {
        format!("cannot understand the time {text:?}; write a time of today such as `18:00`, or `2026-11-22T18:00:00Z`")
    };
    let moment = match text.parse::<Timestamp>() {
        Ok(moment) => moment,
        Err(_) => {
            let time = text.parse::<Time>().ok().filter(|_| text.len() == "18:00".len()).ok_or_else(unclear)?;
            now.date().to_datetime(time).to_zoned(now.time_zone().clone()).map_err(|_| unclear())?.timestamp()
        }
    };
    match moment > now.timestamp() {
        true => Ok(moment),
        false => Err(format!("{text:?} has passed; write a later time with its day, or a duration with `--for`")),
    }
}

/// Returns a moment in the words of the place where this program runs.
pub(crate) fn local(at: u64) -> String {
    let at = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok()).unwrap_or_default();
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Returns the first moment of what the text names, and whether it names a whole day.
fn beginning(text: &str, now: &Zoned) -> Result<(Timestamp, bool), String> {
    let unclear = || {
        let hint = match text.parse::<u64>() {
            Ok(_) => format!("; did you mean `{text}s`, `{text}m` or `{text}h`?"),
            Err(_) => "; write an age such as `2h` or `7d`, `today`, `yesterday`, a day such as `2026-11-22`, or a \
                       moment such as `2026-11-22T14:00:00Z`"
                .to_owned(),
        };
        format!("cannot understand the time {text:?}{hint}")
    };
    let day = match text {
        "now" => return Ok((now.timestamp(), false)),
        "today" => Some(now.date()),
        "yesterday" => now.date().yesterday().ok(),
        _ => text.parse::<Date>().ok().filter(|_| text.len() == "2026-11-22".len()),
    };
    if let Some(day) = day {
        let start = day.to_zoned(now.time_zone().clone()).map_err(|_| unclear())?;
        return Ok((start.timestamp(), true));
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok((moment, false));
    }
    let age: Span = text.parse().map_err(|_| unclear())?;
    // An age is a length of time, however it is written: `-2h` is not a moment in the future.
    let ago = now.checked_sub(age.abs()).map_err(|_| unclear())?;
    if age.fieldwise() == 0.seconds() { Err(unclear()) } else { Ok((ago.timestamp(), false)) }
}

/// Returns milliseconds since the Unix epoch; 0 for a moment before it.
fn millis(moment: Timestamp) -> u64 {
    u64::try_from(moment.as_millisecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    fn of(text: &str) -> Result<(String, bool), String> {
        let now: Zoned = "2026-11-23T14:30:00+01:00[Europe/Berlin]".parse().unwrap();
        beginning(text, &now).map(|(from, day)| (from.to_string(), day))
    }

    #[test]
    fn a_moment_is_written_as_people_do() {
        for (text, moment, day) in [
            ("2h", "2026-11-23T11:30:00Z", false),
            ("1h 30m", "2026-11-23T12:00:00Z", false),
            ("7d", "2026-11-16T13:30:00Z", false),
            ("90s", "2026-11-23T13:28:30Z", false),
            ("now", "2026-11-23T13:30:00Z", false),
            ("today", "2026-11-22T23:00:00Z", true),
            ("yesterday", "2026-11-21T23:00:00Z", true),
            ("2026-11-01", "2026-10-31T23:00:00Z", true),
            ("2026-11-01T10:00:00Z", "2026-11-01T10:00:00Z", false),
            ("2026-11-01T10:00:00+02:00", "2026-11-01T08:00:00Z", false),
        ] {
            assert_eq!(of(text), Ok((moment.to_owned(), day)), "{text}");
        }
    }

    #[test]
    fn a_moment_that_is_not_understood_is_answered_with_one_that_is() {
        assert!(of("30").unwrap_err().contains("did you mean `30s`, `30m` or `30h`?"));
        for text in ["tomorrowish", "", "0s", "2026-13-01", "2026-11-01T10:00"] {
            assert!(of(text).unwrap_err().contains("such as `2h`"), "{text:?}");
        }
    }

    #[test]
    fn a_moment_in_the_future_is_a_time_of_today_or_a_duration_from_now() {
        let now: Zoned = "2026-11-23T14:30:00+01:00[Europe/Berlin]".parse().unwrap();
        let text = |moment: Result<Timestamp, String>| moment.map(|moment| moment.to_string());
        for (time, moment) in [
            ("18:00", "2026-11-23T17:00:00Z"),
            ("23:59", "2026-11-23T22:59:00Z"),
            ("2026-11-24T01:00:00Z", "2026-11-24T01:00:00Z"),
        ] {
            assert_eq!(text(ahead(time, &now)), Ok(moment.to_owned()), "{time}");
        }
        for time in ["14:30", "09:00", "2026-11-23T13:30:00Z"] {
            assert!(ahead(time, &now).unwrap_err().contains("has passed"), "{time}");
        }
        for time in ["", "6pm", "25:00", "18", "tomorrow", "18:00:00.5"] {
            assert!(ahead(time, &now).unwrap_err().contains("such as `18:00`"), "{time}");
        }
        assert_eq!(text(later_by("2h", &now)), Ok("2026-11-23T15:30:00Z".to_owned()));
        assert!(later_by("90", &now).unwrap_err().contains("did you mean `90m` or `90h`?"));
        for duration in ["", "-2h", "0s", "2 h ago", "999999999y"] {
            assert!(later_by(duration, &now).unwrap_err().contains("such as `90m`"), "{duration}");
        }
    }

    #[test]
    fn until_a_day_is_until_its_end() {
        let (from, to) = (since("2026-11-22").unwrap(), until("2026-11-22").unwrap());
        assert_eq!(to - from, 24 * 60 * 60 * 1000);
        assert_eq!(since("2026-11-22T14:00:00Z"), until("2026-11-22T14:00:00Z"));
    }
}
