//! Refused expressions and zones.

use crate::durable::cron::{error::CronError, expression::Cron, field::CronField};

fn error(expression: &str) -> CronError {
    Cron::new(expression, "UTC").unwrap_err()
}

fn text(text: &str) -> String {
    text.to_owned()
}

#[test]
fn fields_are_counted() {
    for (expression, count) in [("", 0), ("   ", 0), ("*", 1), ("* * * *", 4), ("0 0 0 * * ? 2026", 7)] {
        assert_eq!(error(expression), CronError::FieldCount { count }, "{expression}");
    }
}

#[test]
fn an_expression_has_a_longest_length() {
    let minutes = |count: usize| format!("0{} * * * *", ",0".repeat(count));
    let longest = minutes(Cron::MAX_LENGTH / 2 - 5);
    assert!(longest.len() <= Cron::MAX_LENGTH && longest.len() + 2 > Cron::MAX_LENGTH);
    Cron::new(&longest, "UTC").unwrap();
    let longer = minutes(Cron::MAX_LENGTH / 2 - 4);
    assert_eq!(error(&longer), CronError::TooLong { length: longer.len() });
}

#[test]
fn names_are_checked() {
    for name in ["@", "@reboot", "@every 5m", "@daily x", "@dayly"] {
        assert_eq!(error(name), CronError::UnknownName { name: text(name) });
    }
}

#[test]
fn an_error_names_the_field_and_the_item() {
    let cases = [
        ("x * * * * *", CronField::Second, "x"),
        ("1,, * * * *", CronField::Minute, ""),
        (", * * * *", CronField::Minute, ""),
        ("+5 * * * *", CronField::Minute, "+5"),
        ("-5 * * * *", CronField::Minute, "-5"),
        ("5- * * * *", CronField::Minute, "5-"),
        ("1-2-3 * * * *", CronField::Minute, "1-2-3"),
        ("*-5 * * * *", CronField::Minute, "*-5"),
        ("** * * * *", CronField::Minute, "**"),
        ("*/ * * * *", CronField::Minute, "*/"),
        ("*/x * * * *", CronField::Minute, "*/x"),
        ("*/2/3 * * * *", CronField::Minute, "*/2/3"),
        ("/5 * * * *", CronField::Minute, "/5"),
        ("? * * * *", CronField::Minute, "?"),
        ("L * * * *", CronField::Minute, "L"),
        ("\u{665} * * * *", CronField::Minute, "\u{665}"),
        ("* H * * *", CronField::Hour, "H"),
        ("* MON * * *", CronField::Hour, "MON"),
        ("* * MON * *", CronField::DayOfMonth, "MON"),
        ("* * ?,1 * *", CronField::DayOfMonth, "?"),
        ("* * W * *", CronField::DayOfMonth, "W"),
        ("* * 1-5W * *", CronField::DayOfMonth, "1-5W"),
        ("* * 15WL * *", CronField::DayOfMonth, "15WL"),
        ("* * L- * *", CronField::DayOfMonth, "L-"),
        ("* * L-3W * *", CronField::DayOfMonth, "L-3W"),
        ("* * 1-L * *", CronField::DayOfMonth, "1-L"),
        ("* * LL * *", CronField::DayOfMonth, "LL"),
        ("* * * JANUARY *", CronField::Month, "JANUARY"),
        ("* * * MON *", CronField::Month, "MON"),
        ("* * * * JAN", CronField::DayOfWeek, "JAN"),
        ("* * * * L", CronField::DayOfWeek, "L"),
        ("* * * * 1-5L", CronField::DayOfWeek, "1-5L"),
        ("* * * * 15W", CronField::DayOfWeek, "15W"),
        ("* * * * MON#", CronField::DayOfWeek, "MON#"),
        ("* * * * #1", CronField::DayOfWeek, "#1"),
        ("* * * * MON#1#2", CronField::DayOfWeek, "MON#1#2"),
        ("* * * * MON#L", CronField::DayOfWeek, "MON#L"),
        ("* * * * MON-FRI#1", CronField::DayOfWeek, "MON-FRI#1"),
    ];
    for (expression, field, item) in cases {
        assert_eq!(error(expression), CronError::Syntax { field, text: text(item) }, "{expression}");
    }
}

#[test]
fn numbers_have_ranges() {
    let cases = [
        ("60 * * * * *", CronField::Second, "60"),
        ("60 * * * *", CronField::Minute, "60"),
        ("0,5-60 * * * *", CronField::Minute, "5-60"),
        ("256 * * * *", CronField::Minute, "256"),
        ("99999999999999999999 * * * *", CronField::Minute, "99999999999999999999"),
        ("0 24 * * *", CronField::Hour, "24"),
        ("0 0 0 * *", CronField::DayOfMonth, "0"),
        ("0 0 32 * *", CronField::DayOfMonth, "32"),
        ("0 0 0W * *", CronField::DayOfMonth, "0W"),
        ("0 0 32W * *", CronField::DayOfMonth, "32W"),
        ("0 0 L-0 * *", CronField::DayOfMonth, "L-0"),
        ("0 0 L-31 * *", CronField::DayOfMonth, "L-31"),
        ("0 0 * 0 *", CronField::Month, "0"),
        ("0 0 * 13 *", CronField::Month, "13"),
        ("0 0 * * 8", CronField::DayOfWeek, "8"),
        ("0 0 * * 8L", CronField::DayOfWeek, "8L"),
        ("0 0 * * 8#1", CronField::DayOfWeek, "8#1"),
        ("0 0 * * MON#0", CronField::DayOfWeek, "MON#0"),
        ("0 0 * * MON#6", CronField::DayOfWeek, "MON#6"),
    ];
    for (expression, field, item) in cases {
        assert_eq!(error(expression), CronError::OutOfRange { field, text: text(item) }, "{expression}");
    }
}

#[test]
fn steps_select_more_than_one_value() {
    let cases = [
        ("*/0 * * * *", CronField::Minute, "*/0", "59"),
        ("*/60 * * * *", CronField::Minute, "*/60", "59"),
        ("*/90 * * * *", CronField::Minute, "*/90", "59"),
        ("*/999 * * * *", CronField::Minute, "*/999", "59"),
        ("*/60 * * * * *", CronField::Second, "*/60", "59"),
        ("0 2/24 * * *", CronField::Hour, "2/24", "23"),
        ("0 0 */31 * *", CronField::DayOfMonth, "*/31", "30"),
        ("0 0 1 */12 *", CronField::Month, "*/12", "11"),
        ("0 0 * * 1-5/7", CronField::DayOfWeek, "1-5/7", "6"),
    ];
    for (expression, field, item, largest) in cases {
        let error = error(expression);
        assert_eq!(error, CronError::EngineStep { field, text: text(item) }, "{expression}");
        assert!(error.to_string().ends_with(&format!("must be between 1 and {largest}")), "{error}");
    }
}

#[test]
fn dates_that_do_not_exist_are_refused() {
    for expression in
        ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31W 4 *", "0 0 L-29 2 *", "0 0 30 2 ?", "0 0 30 2 */2"]
    {
        assert_eq!(error(expression), CronError::NeverMatches { expression: text(expression) });
    }
    // The other field of days matches.
    Cron::new("0 0 30 2 MON", "UTC").unwrap();
    Cron::new("0 0 L-28 2 *", "UTC").unwrap();
}

#[test]
fn zones_are_looked_up() {
    let long = "\u{e9}/".repeat(100);
    for zone in ["", " ", "Mars/Olympus", "Etc/Unknown", "../../etc/passwd", "CET-1CEST,M3.5.0", "\0", &long]
    {
        let cut = zone.chars().take(64).collect();
        assert_eq!(Cron::new("@daily", zone).unwrap_err(), CronError::UnknownZone { zone: cut });
    }
    for zone in ["UTC", "Europe/Berlin", "US/Eastern", "Asia/Calcutta", "Etc/GMT+5"] {
        assert_eq!(Cron::new("@daily", zone).unwrap().zone(), zone);
    }
}

#[test]
fn errors_say_what_is_allowed() {
    let texts = [
        ("61 * * * *", "minute is `61`; allowed are 0 to 59, *, lists, ranges and steps"),
        ("0 0 * FOO *", "month is `FOO`; allowed are 1 to 12, JAN to DEC, *, lists, ranges and steps"),
        ("*/90 * * * *", "minute is `*/90`; the step must be between 1 and 59"),
        ("0 0 30 2 *", "cron expression `0 0 30 2 *` matches no day of the calendar"),
        (
            "* * *",
            "cron expression has 3 fields; it must have 5 (minute, hour, day of month, month, day of week), \
             or 6 with the seconds first",
        ),
        (
            "@reboot",
            "cron expression is `@reboot`; known names are @hourly, @daily, @midnight, @weekly, @monthly, \
             @yearly and @annually",
        ),
    ];
    for (expression, message) in texts {
        assert_eq!(error(expression).to_string(), message);
    }
    let long = error(&" ".repeat(300)).to_string();
    assert_eq!(long, "cron expression has 300 bytes; allowed are up to 256");
    let zone = Cron::new("@daily", "Mars/Olympus").unwrap_err().to_string();
    assert_eq!(zone, "time zone is `Mars/Olympus`; it must be a name of the IANA database");
}
