//! Runs around changes of the clock that were worked out by hand.

use super::support::assert_runs;

/// P-18.
#[test]
fn a_time_in_a_gap_runs_at_its_end() {
    // Berlin: 2026-03-29 02:00 becomes 03:00.
    let berlin = |expression, expected| {
        assert_runs(expression, "Europe/Berlin", "2026-03-28T12:00Z", expected);
    };
    berlin("30 2 * * *", "2026-03-29T03:00+02:00 2026-03-30T02:30+02:00");
    berlin("0 2 * * *", "2026-03-29T03:00+02:00 2026-03-30T02:00+02:00");
    berlin("0 3 * * *", "2026-03-29T03:00+02:00 2026-03-30T03:00+02:00");
    berlin("59 1 * * *", "2026-03-29T01:59+01:00 2026-03-30T01:59+02:00");
    berlin("30 2 29 3 *", "2026-03-29T03:00+02:00 2027-03-29T02:30+02:00");
    // Midnight of Chile and Egypt.
    let chile = "2026-09-06T01:00-03:00 2026-09-07T00:00-03:00";
    assert_runs("0 0 * * *", "America/Santiago", "2026-09-05T12:00Z", chile);
    let egypt = "2026-04-24T01:00+03:00 2026-04-25T00:15+03:00";
    assert_runs("15 0 * * *", "Africa/Cairo", "2026-04-23T12:00Z", egypt);
}

/// P-18.
#[test]
fn all_times_in_a_gap_run_once() {
    let berlin = |expression, expected| {
        assert_runs(expression, "Europe/Berlin", "2026-03-28T12:00Z", expected);
    };
    berlin("*/15 2 * * *", "2026-03-29T03:00+02:00 2026-03-30T02:00+02:00 2026-03-30T02:15+02:00");
    berlin("*/30 2-3 * * *", "2026-03-29T03:00+02:00 2026-03-29T03:30+02:00 2026-03-30T02:00+02:00");
    berlin(
        "*/30 1,2 * * *",
        "2026-03-29T01:00+01:00 2026-03-29T01:30+01:00 2026-03-29T03:00+02:00 2026-03-30T01:00+02:00",
    );
    berlin("* * 2 * * *", "2026-03-29T03:00+02:00 2026-03-30T02:00+02:00");
    berlin(
        "0 */2 * * *",
        "2026-03-28T14:00+01:00 2026-03-28T16:00+01:00 2026-03-28T18:00+01:00 2026-03-28T20:00+01:00 2026-03-28T22:00+01:00 2026-03-29T00:00+01:00 2026-03-29T03:00+02:00 2026-03-29T04:00+02:00",
    );
}

/// P-18.
#[test]
fn a_time_in_a_fold_runs_at_the_first_instant() {
    // New York: 2026-11-01 02:00 becomes 01:00.
    let new_york = |expression, after, expected| {
        assert_runs(expression, "America/New_York", after, expected);
    };
    let noon = "2026-10-31T16:00Z";
    new_york("30 1 * * *", noon, "2026-11-01T01:30-04:00 2026-11-02T01:30-05:00");
    new_york("*/30 1 * * *", noon, "2026-11-01T01:00-04:00 2026-11-01T01:30-04:00 2026-11-02T01:00-05:00");
    new_york(
        "*/30 1,2 * * *",
        noon,
        "2026-11-01T01:00-04:00 2026-11-01T01:30-04:00 2026-11-01T02:00-05:00 2026-11-01T02:30-05:00",
    );
    // An expression for all hours but one has restricted hours.
    new_york("30 0-22 * * *", "2026-11-01T01:00-04:00", "2026-11-01T01:30-04:00 2026-11-01T02:30-05:00");
    // A search that starts in the second hour.
    new_york("30 1 * * *", "2026-11-01T01:00-05:00", "2026-11-02T01:30-05:00");
    new_york("30 1 * * *", "2026-11-01T01:15-05:00", "2026-11-02T01:30-05:00");
    new_york("0 0 2 * * *", "2026-11-01T01:15-05:00", "2026-11-01T02:00-05:00");
    // A search that starts just before and at the transition, in the last second of the first hour.
    new_york("30 1 * * *", "2026-11-01T01:59:59.999-04:00", "2026-11-02T01:30-05:00");
    new_york("30 1 * * *", "2026-11-01T01:30:00.000-04:00", "2026-11-02T01:30-05:00");
    new_york("30 1 * * *", "2026-11-01T01:29:59.999-04:00", "2026-11-01T01:30-04:00");
}

#[test]
fn expressions_for_each_hour_follow_the_clock() {
    let new_york = |expression, after, expected| {
        assert_runs(expression, "America/New_York", after, expected);
    };
    let fold = "2026-11-01T01:00-04:00";
    new_york(
        "*/30 * * * *",
        fold,
        "2026-11-01T01:30-04:00 2026-11-01T01:00-05:00 2026-11-01T01:30-05:00 2026-11-01T02:00-05:00",
    );
    new_york("0 * * * *", fold, "2026-11-01T01:00-05:00 2026-11-01T02:00-05:00");
    new_york("@hourly", fold, "2026-11-01T01:00-05:00 2026-11-01T02:00-05:00");
    new_york("0 0-23 * * *", fold, "2026-11-01T01:00-05:00 2026-11-01T02:00-05:00");
    // New York: 2026-03-08 02:00 becomes 03:00.
    let gap = "2026-03-08T01:30-05:00";
    new_york("*/30 * * * *", gap, "2026-03-08T03:00-04:00 2026-03-08T03:30-04:00");
    new_york("30 * * * *", gap, "2026-03-08T03:30-04:00 2026-03-08T04:30-04:00");
    // One day a year.
    new_york(
        "0 * 1 11 *",
        "2026-11-01T00:30-04:00",
        "2026-11-01T01:00-04:00 2026-11-01T01:00-05:00 2026-11-01T02:00-05:00",
    );
}

#[test]
fn half_an_hour_and_two_hours() {
    // Lord Howe: 2026-04-05 02:00 becomes 01:30, 2026-10-04 02:00 becomes 02:30.
    let lord_howe = |expression, after, expected| {
        assert_runs(expression, "Australia/Lord_Howe", after, expected);
    };
    lord_howe("45 1 * * *", "2026-04-04T12:00Z", "2026-04-05T01:45+11:00 2026-04-06T01:45+10:30");
    lord_howe("15 1 * * *", "2026-04-04T12:00Z", "2026-04-05T01:15+11:00 2026-04-06T01:15+10:30");
    lord_howe("15 2 * * *", "2026-10-03T12:00Z", "2026-10-04T02:30+11:00 2026-10-05T02:15+11:00");
    lord_howe(
        "*/15 * * * *",
        "2026-04-05T01:30+11:00",
        "2026-04-05T01:45+11:00 2026-04-05T01:30+10:30 2026-04-05T01:45+10:30",
    );
    // Troll: 2026-03-29 01:00 becomes 03:00.
    let troll = "2026-03-29T03:00+02:00 2026-03-30T01:30+02:00 2026-03-30T02:30+02:00";
    assert_runs("30 1,2 * * *", "Antarctica/Troll", "2026-03-28T12:00Z", troll);
}

#[test]
fn a_day_that_was_left_out() {
    // Samoa went from 29 to 31 December 2011.
    let samoa = |expression, expected| assert_runs(expression, "Pacific/Apia", "2011-12-29T22:00Z", expected);
    samoa("0 9,15 * * *", "2011-12-29T15:00-10:00 2011-12-31T00:00+14:00 2011-12-31T09:00+14:00");
    samoa("0 12 30 12 *", "2011-12-31T00:00+14:00 2012-12-30T12:00+14:00");
    samoa("0 * * * *", "2011-12-29T13:00-10:00");
}

#[test]
fn negative_and_distant_times() {
    assert_runs("0 0 * * *", "UTC", "1969-12-30T12:00Z", "1969-12-31T00:00+00:00 1970-01-01T00:00+00:00");
    // The rules of a zone are repeated each year: 02:00 becomes 03:00 on 30 March 2200.
    assert_runs("30 2 * * *", "Europe/Berlin", "2200-03-29T12:00Z", "2200-03-30T03:00+02:00");
}
