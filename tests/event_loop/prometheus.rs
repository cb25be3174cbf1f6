//! The Prometheus text: its format, and the metrics of working loops.

#![cfg(feature = "prometheus")]

use crate::support::{
    loops::{end, one_loop, some_turns, turn_until},
    recorder::{echo, silent},
    servers::{Settings, dial, serve_with},
    tcp::{connect, ping},
    wait::{done, receive},
};
use netwheel::{Error, codec::LengthField, prelude::*, prometheus};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The families that a text declares, and its samples.
#[derive(Debug, Default)]
struct Scrape {
    /// Type and unit of each family.
    families: BTreeMap<String, (String, Option<String>)>,
    /// Values by name and labels, as written.
    samples: BTreeMap<String, f64>,
}

/// Returns the names and values of `{a="b",c="d"}`. The values in these tests need no escapes.
fn labels(text: &str) -> BTreeMap<&str, &str> {
    let inside = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).expect("labels in braces");
    inside
        .split(',')
        .map(|label| {
            let (name, value) = label.split_once('=').expect("a label has a value");
            let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            (name, value.expect("the value is in quotes"))
        })
        .collect()
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Parses a text strictly.
#[track_caller]
fn parse(text: &str) -> Scrape {
    let body = text.strip_suffix("# EOF\n").expect("the text ends with # EOF");
    let mut scrape = Scrape::default();
    let (mut current, mut helped) = (String::new(), BTreeSet::new());
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_else(|| panic!("{line:?} is incomplete"));
            let (keyword, name, rest) = (word(), word().to_owned(), word().to_owned());
            assert!(name.starts_with("netwheel_") && is_name(&name), "{line:?}");
            match keyword {
                "HELP" => assert!(rest.ends_with('.') && helped.insert(name), "{line:?}"),
                "TYPE" => {
                    assert!(helped.contains(&name) && !name.ends_with("_total"), "{line:?}");
                    let before = scrape.families.insert(name.clone(), (rest, None));
                    assert!(before.is_none(), "{name} is declared twice");
                    current = name;
                }
                "UNIT" => {
                    assert!(name == current && name.ends_with(&format!("_{rest}")), "{line:?}");
                    scrape.families.get_mut(&name).expect("the type precedes the unit").1 = Some(rest);
                }
                _ => panic!("{line:?}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, rest) = series.split_at(series.find('{').expect("labels"));
        let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("{line:?} among {current}"));
        let labels = labels(rest);
        assert!(labels.contains_key("event_loop") && labels.keys().all(|name| is_name(name)), "{line:?}");
        let allowed: &[&str] = match scrape.families[&current].0.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("{current} is a {other}"),
        };
        assert!(allowed.contains(&suffix), "{line:?}");
        assert_eq!(suffix == "_bucket", labels.contains_key("le"), "{line:?}");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line:?}"));
        assert!(value >= 0.0 && scrape.samples.insert(series.to_owned(), value).is_none(), "{line:?}");
    }
    scrape.check_histograms(body);
    scrape
}

impl Scrape {
    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.samples))
    }

    fn is_monotone(&self, series: &str) -> bool {
        let name = &series[..series.find('{').unwrap()];
        ["_total", "_bucket", "_sum", "_count"].iter().any(|suffix| name.ends_with(suffix))
    }

    /// Checks that buckets are in order and cumulative, and that the last one counts all values.
    #[track_caller]
    fn check_histograms(&self, body: &str) {
        let mut last: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for line in body.lines().filter(|line| line.contains("_bucket{")) {
            let (series, count) = line.rsplit_once(' ').unwrap();
            let (name, rest) = series.split_at(series.find('{').unwrap());
            let labels = labels(rest);
            let bound = match labels["le"] {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().unwrap(),
            };
            let count: f64 = count.parse().unwrap();
            let key = format!(
                "{}{{event_loop=\"{}\"}}",
                name.strip_suffix("_bucket").unwrap(),
                labels["event_loop"]
            );
            let before = last.insert(key, (bound, count)).unwrap_or((0.0, 0.0));
            assert!(bound > before.0 && count >= before.1, "{line:?} after {before:?}");
        }
        for (histogram, (bound, count)) in &last {
            assert_eq!(*bound, f64::INFINITY, "{histogram}");
            assert_eq!(*count, self.value(&histogram.replace('{', "_count{")), "{histogram}");
        }
        let histograms = self.families.values().filter(|(kind, _)| kind == "histogram").count();
        assert!(histograms >= 2 && last.len().is_multiple_of(histograms), "{last:?}");
    }
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[..], body].concat()
}

#[test]
fn the_metrics_of_a_working_loop_are_exported() {
    let group = EventLoopGroup::builder().threads(1).name("scraped").build().unwrap();
    let (server, events) = serve_with(&group, Settings::new(), LengthField::u32(), echo);
    let (client, _events) = dial(&group, server.local_address(), Settings::new(), silent);
    events.channel();
    let mut stream = connect(server.local_address());
    let mut work = |times| {
        for _ in 0..times {
            ping(&mut stream, &frame(b"hello"));
            group.next().schedule(Duration::ZERO, || ()).unwrap().completion().wait().unwrap();
        }
        some_turns(&group);
    };
    work(10);
    let first = parse(&prometheus::encode(&group).unwrap());
    let counts =
        |scrape: &Scrape, name: &str| scrape.value(&format!("netwheel_{name}{{event_loop=\"scraped-0\"}}"));
    for (name, n) in [
        ("channels", 3.0),
        ("accepted_total", 2.0),
        ("connected_total", 1.0),
        ("channels_closed_total", 0.0),
        ("messages_read_total", 10.0),
        ("messages_written_total", 10.0),
        ("read_bytes_total", 90.0),
        ("written_bytes_total", 90.0),
        ("timers_fired_total", 10.0),
        ("timers_cancelled_total", 1.0),
        ("lag_seconds_count", 10.0),
        ("tasks_refused_total", 0.0),
    ] {
        assert_eq!(counts(&first, name), n, "{name}");
    }
    assert!(counts(&first, "turns_total") >= 10.0 && counts(&first, "lag_seconds_sum") > 0.0);
    for cause in ["io", "waker", "deadline", "interrupted", "premature"] {
        first.value(&format!("netwheel_wakes_total{{event_loop=\"scraped-0\",cause=\"{cause}\"}}"));
    }
    for phase in ["polling", "io", "tasks", "timers", "flushing"] {
        first.value(&format!("netwheel_time_seconds_total{{event_loop=\"scraped-0\",phase=\"{phase}\"}}"));
    }
    assert_eq!(first.families["netwheel_lag_seconds"], ("histogram".into(), Some("seconds".into())));
    assert_eq!(first.families["netwheel_read_bytes"], ("counter".into(), Some("bytes".into())));

    work(5);
    client.close();
    done(client.closed()).unwrap();
    turn_until(&group, |metrics| metrics.channels_closed == 2);
    let second = parse(&prometheus::encode(&group).unwrap());
    assert!(first.samples.keys().eq(second.samples.keys()), "the same series in every scrape");
    for (series, value) in first.samples.iter().filter(|(series, _)| first.is_monotone(series)) {
        assert!(second.samples[series] >= *value, "{series} decreased");
    }
    assert_eq!(counts(&second, "messages_read_total"), 15.0);
    assert_eq!((counts(&second, "channels"), counts(&second, "channels_closed_total")), (1.0, 2.0));
    end(&group);
}

#[test]
fn one_collector_declares_the_metrics_of_several_groups_once() {
    let named = |name: &str| EventLoopGroup::builder().threads(2).name(name).build().unwrap();
    let (acceptors, workers) = (named("acceptor"), named("worker"));
    let collector = prometheus::Collector::new(&acceptors).and(prometheus::Collector::new(&workers)).unwrap();
    let (sender, ran) = std::sync::mpsc::channel();
    workers.event_loops()[1].execute(move || sender.send(()).unwrap()).unwrap();
    receive(&ran);
    end(&workers);

    let scrape = parse(&prometheus::encode(&collector).unwrap());
    let turns = |name| scrape.value(&format!("netwheel_turns_total{{event_loop=\"{name}\"}}"));
    assert_eq!(["acceptor-0", "acceptor-1", "worker-0"].map(turns), [0.0; 3]);
    assert!(turns("worker-1") > 0.0, "a terminated loop keeps its metrics");
}

#[cfg(feature = "prometheus-client-025")]
#[test]
fn a_registry_of_the_program_has_the_same_text() {
    let group = one_loop();
    end(&group);
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(prometheus::Collector::new(&group)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert_eq!(text, prometheus::encode(&group).unwrap());
}

/// The format allows one declaration of each metric.
#[test]
fn two_collectors_of_loops_in_one_text_are_refused() {
    let group = one_loop();
    let pair = (&group, Some(prometheus::Collector::new(&group)));
    let Err(Error::Setting(refused)) = prometheus::encode(&pair) else { panic!("declared twice") };
    assert_eq!(refused.setting(), "exported");
    let none: Option<&EventLoopGroup> = None;
    assert_eq!(prometheus::encode(&(none, none)).unwrap(), "# EOF\n");
}

#[test]
fn loops_with_the_same_name_are_refused() {
    let (one, other) = (EventLoopGroup::new().unwrap(), EventLoopGroup::new().unwrap());
    let Err(Error::Setting(refused)) =
        prometheus::Collector::new(&one).and(prometheus::Collector::new(&other))
    else {
        panic!("two groups with the same name were accepted")
    };
    assert_eq!((refused.setting(), refused.value()), ("name", "netwheel-0"));
}

#[test]
fn the_name_of_a_loop_is_escaped() {
    let group = EventLoopGroup::builder().threads(1).name(r#"a "quoted" \ name"#).build().unwrap();
    let text = prometheus::encode(&group).unwrap();
    assert!(text.contains(r#"netwheel_turns_total{event_loop="a \"quoted\" \\ name-0"} 0"#), "{text}");
}

#[test]
fn the_documented_names_are_exported() {
    let group = EventLoopGroup::builder().threads(1).name("named").build().unwrap();
    let scrape = parse(&prometheus::encode(&group).unwrap());
    let page = include_str!("../../docs/observability.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | `netwheel_"));
    // Those of durable timers and of topics are exported by collectors of their own.
    let rows = rows.filter(|(_, rest)| !rest.starts_with("durable_") && !rest.starts_with("broker_"));
    let mut documented = 0;
    for (field, rest) in rows {
        let (name, rest) = rest.split_once("` | ").unwrap();
        let suffix = if rest.starts_with("histogram") { "_count" } else { "" };
        let (name, label) = name.split_once('{').unwrap_or((name, "}"));
        let comma = if label == "}" { "" } else { "," };
        let series = format!("netwheel_{name}{suffix}{{event_loop=\"named-0\"{comma}{label}");
        assert_eq!(scrape.value(&series), 0.0, "{field}");
        documented += 1;
    }
    let of_histogram = |series: &&String| !series.contains("_bucket{") && !series.contains("_sum{");
    assert_eq!(documented, scrape.samples.keys().filter(of_histogram).count());
}
