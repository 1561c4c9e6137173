//! The date that `strftime_now` prints. A time without a zone, so that a rendering can be repeated.

use std::time::{SystemTime, UNIX_EPOCH};

use super::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

/// A date and time of the proleptic Gregorian calendar, without a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateTime {
    year: i64,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    micro: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl DateTime {
    /// The present, in UTC.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(0);
        Self::from_unix(seconds, since.subsec_micros())
    }

    /// The time a number of seconds after the Unix epoch, in UTC.
    pub fn from_unix(seconds: i64, micro: u32) -> Self {
        let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let part = |n: i64| u32::try_from(n).unwrap_or(0);
        Self {
            year,
            month,
            day,
            hour: part(of_day / 3600),
            minute: part(of_day / 60 % 60),
            second: part(of_day % 60),
            micro,
        }
    }

    /// Reads `2026-01-15T12:30:45`, with an optional fraction and zone; the zone is dropped, the time is taken as it
    /// is written. A date alone is midnight.
    pub fn parse(text: &str) -> TemplateResult<Self> {
        Self::parse_parts(text.trim()).ok_or_else(|| {
            let message = format!("`{text}` is not a time such as 2026-01-15T12:30:45");
            TemplateError::new(Kind::Request, message)
        })
    }

    fn parse_parts(text: &str) -> Option<Self> {
        let (date, time) = match text.split_once(['T', 't', ' ']) {
            Some((date, time)) => (date, time),
            None => (text, "00:00:00"),
        };
        let number = |s: &str, len: usize| {
            (s.len() == len && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse::<u32>().ok())?
        };
        let mut parts = date.splitn(3, '-');
        let year = number(parts.next()?, 4)?;
        let month = number(parts.next()?, 2).filter(|m| (1..=12).contains(m))?;
        let day = number(parts.next()?, 2).filter(|d| *d >= 1 && *d <= days_in_month(year.into(), month))?;
        let clock = time.split(['Z', 'z', '+', '-']).next()?;
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
        let mut parts = clock.splitn(3, ':');
        let hour = number(parts.next()?, 2).filter(|h| *h < 24)?;
        let minute = number(parts.next()?, 2).filter(|m| *m < 60)?;
        let second = number(parts.next().unwrap_or("00"), 2).filter(|s| *s < 61)?;
        let micro = if fraction.is_empty() {
            0
        } else {
            number(&format!("{fraction:0<6}").chars().take(6).collect::<String>(), 6)?
        };
        Some(Self { year: year.into(), month, day, hour, minute, second, micro })
    }

    fn days(&self) -> i64 {
        // Days from the epoch (H. Hinnant, "chrono-compatible low-level date algorithms").
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = self.year - i64::from(month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
    }

    /// 0 is Sunday.
    fn weekday(&self) -> i64 {
        (self.days() + 4).rem_euclid(7)
    }

    /// Day of the year from 1.
    fn yearday(&self) -> i64 {
        self.days() - Self { month: 1, day: 1, ..*self }.days() + 1
    }

    /// ISO year and week.
    fn iso_week(&self) -> (i64, i64) {
        let weekday = (self.weekday() + 6) % 7;
        let week = (self.yearday() - 1 - weekday + 10) / 7;
        let weeks = |year: i64| {
            let first = Self { year, month: 1, day: 1, ..*self };
            let last = Self { year, month: 12, day: 31, ..*self };
            52 + i64::from(first.weekday() == 4 || last.weekday() == 4)
        };
        if week < 1 {
            (self.year - 1, weeks(self.year - 1))
        } else if week > weeks(self.year) {
            (self.year + 1, 1)
        } else {
            (self.year, week)
        }
    }

    /// Formats the time as Python's `strftime` does in the C locale. An unknown directive stays as it is.
    pub fn strftime(&self, format: &str) -> String {
        let mut out = String::with_capacity(format.len() * 2);
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut directive = chars.next();
            let mut pad = None;
            if let Some(flag @ ('-' | '_' | '0' | '^' | '#')) = directive {
                pad = Some(flag);
                directive = chars.next();
            }
            match directive {
                Some(d) => self.directive(d, pad, &mut out),
                None => out.push('%'),
            }
        }
        out
    }

    fn directive(&self, directive: char, pad: Option<char>, out: &mut String) {
        let name = |names: &[&'static str], i: i64| {
            usize::try_from(i).ok().and_then(|i| names.get(i).copied()).unwrap_or("")
        };
        let short = |s: &str| s.chars().take(3).collect::<String>();
        let weekday = name(&WEEKDAYS, self.weekday());
        let month = name(&MONTHS, i64::from(self.month) - 1);
        let hour12 = i64::from((self.hour + 11) % 12 + 1);
        let mut number = |value: i64, width: usize, fill: char| {
            let text = match pad {
                Some('-') => value.to_string(),
                Some('_') => format!("{value:width$}"),
                Some('0') => format!("{value:0width$}"),
                _ if fill == ' ' => format!("{value:width$}"),
                _ => format!("{value:0width$}"),
            };
            out.push_str(&text);
        };
        let (iso_year, iso_week) = self.iso_week();
        match directive {
            'Y' => number(self.year, 4, '0'),
            'G' => number(iso_year, 4, '0'),
            'C' => number(self.year.div_euclid(100), 2, '0'),
            'y' => number(self.year.rem_euclid(100), 2, '0'),
            'g' => number(iso_year.rem_euclid(100), 2, '0'),
            'm' => number(self.month.into(), 2, '0'),
            'd' => number(self.day.into(), 2, '0'),
            'e' => number(self.day.into(), 2, ' '),
            'H' => number(self.hour.into(), 2, '0'),
            'k' => number(self.hour.into(), 2, ' '),
            'I' => number(hour12, 2, '0'),
            'l' => number(hour12, 2, ' '),
            'M' => number(self.minute.into(), 2, '0'),
            'S' => number(self.second.into(), 2, '0'),
            'f' => number(self.micro.into(), 6, '0'),
            'j' => number(self.yearday(), 3, '0'),
            'u' => number((self.weekday() + 6) % 7 + 1, 1, '0'),
            'w' => number(self.weekday(), 1, '0'),
            'U' => number((self.yearday() + 6 - self.weekday()) / 7, 2, '0'),
            'W' => number((self.yearday() + 6 - (self.weekday() + 6) % 7) / 7, 2, '0'),
            'V' => number(iso_week, 2, '0'),
            's' => {
                let of_day =
                    i64::from(self.hour) * 3600 + i64::from(self.minute) * 60 + i64::from(self.second);
                number(self.days() * 86_400 + of_day, 1, '0');
            }
            _ => {
                let text = match directive {
                    'A' => weekday.to_owned(),
                    'a' => short(weekday),
                    'B' => month.to_owned(),
                    'b' | 'h' => short(month),
                    'p' => (if self.hour < 12 { "AM" } else { "PM" }).to_owned(),
                    'P' => (if self.hour < 12 { "am" } else { "pm" }).to_owned(),
                    'c' => self.strftime("%a %b %e %H:%M:%S %Y"),
                    'D' | 'x' => self.strftime("%m/%d/%y"),
                    'F' => self.strftime("%Y-%m-%d"),
                    'T' | 'X' => self.strftime("%H:%M:%S"),
                    'R' => self.strftime("%H:%M"),
                    'r' => self.strftime("%I:%M:%S %p"),
                    'n' => "\n".to_owned(),
                    't' => "\t".to_owned(),
                    '%' => "%".to_owned(),
                    // No zone.
                    'z' | 'Z' => String::new(),
                    other => format!("%{other}"),
                };
                match pad {
                    Some('^') => out.push_str(&text.to_uppercase()),
                    Some('#') if directive == 'p' => out.push_str(&text.to_lowercase()),
                    Some('#') => out.push_str(&text.to_uppercase()),
                    _ => out.push_str(&text),
                }
            }
        }
    }
}

fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Year, month and day of a day counted from the Unix epoch (the inverse of [`DateTime::days`]).
fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, u32::try_from(month).unwrap_or(1), u32::try_from(day).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_the_c_library_does() {
        let t = DateTime::parse("2026-01-05T09:07:45").unwrap();
        assert_eq!(
            t.strftime("%d %b %Y|%-d %B %y|%A %a %j|%H:%M:%S|%I %p|%e|%U %W %V %G %u %w"),
            "05 Jan 2026|5 January 26|Monday Mon 005|09:07:45|09 AM| 5|01 01 02 2026 1 1"
        );
        assert_eq!(
            t.strftime("%F %T %c %x %% %Q %"),
            "2026-01-05 09:07:45 Mon Jan  5 09:07:45 2026 01/05/26 % %Q %"
        );
    }

    #[test]
    fn dates_survive_the_way_to_days_and_back() {
        for days in (-800_000..800_000).step_by(37) {
            let t = DateTime::from_unix(days * 86_400 + 3661, 5);
            assert_eq!(t.days(), days);
            assert_eq!((t.hour, t.minute, t.second), (1, 1, 1));
        }
        assert_eq!(DateTime::from_unix(1_767_225_600, 0), DateTime::parse("2026-01-01").unwrap());
    }

    #[test]
    fn refuses_what_is_no_time() {
        for bad in
            ["", "2026", "2026-13-01", "2026-02-29", "2026-01-01T25:00:00", "2026-01-01T1:2:3", "x-y-z"]
        {
            assert_eq!(DateTime::parse(bad).unwrap_err().kind, Kind::Request, "{bad}");
        }
        let with_zone = DateTime::parse("2026-01-15T12:30:45.123Z").unwrap();
        assert_eq!(with_zone.strftime("%H:%M:%S.%f"), "12:30:45.123000");
        assert_eq!(DateTime::parse("2026-01-15T12:30:45+02:00").unwrap().strftime("%H"), "12");
    }
}
