#![allow(clippy::unwrap_used, reason = "tests")]

use crate::testing::view;

use super::*;
use crate::call::Call;
use crate::item::{Item, ItemKind};

fn call(tool: &str) -> Call {
    let call = Call::clone(&view("{}").call);
    let item = Item { exposed: tool.into(), series_link: SeriesLink::default(), ..Item::clone(&call.item) };
    Call { item: item.into(), ..call }
}

fn counted(metrics: &SourceMetrics, tool: &str) -> Option<u64> {
    let all = metrics.series();
    let found = all.iter().find(|counted| counted.tool.as_deref() == Some(tool))?;
    Some(found.series.endings().map(|(_, histogram)| histogram.count()).sum())
}

#[test]
fn a_duration_counts_in_the_first_bucket_that_holds_it() {
    let histogram = Histogram::new(OPERATION);
    for millis in [0, 10, 11, 300_000, 300_001] {
        histogram.record(Duration::from_millis(millis));
    }
    let shown: Vec<_> = histogram.buckets().into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(shown, [(0.01, 2), (0.02, 1), (300.0, 1), (f64::INFINITY, 1)]);
    assert_eq!((histogram.count(), histogram.seconds()), (5, 600.022));
    for bounds in [OPERATION, DECISION] {
        assert!(bounds.is_sorted());
        assert_eq!(Histogram::new(bounds).buckets().len(), bounds.len() + 1, "none is left over");
    }
}

#[test]
fn names_that_sources_choose_make_a_bounded_number_of_series() {
    let metrics = SourceMetrics::default();
    for number in 0..MAX_TOOLS_PER_SOURCE + 5 {
        call(&format!("files__{number}")).series(&metrics).ended(Ending::Ok, Duration::ZERO);
    }
    assert_eq!(metrics.series().len(), MAX_TOOLS_PER_SOURCE + 1);
    assert_eq!(counted(&metrics, OTHER), Some(5));
    let mut odd = call("files");
    odd.item = Arc::new(Item { kind: ItemKind::Source, ..Item::clone(&odd.item) });
    for number in 0..5 {
        odd.method = format!("vendor/{number}").into();
        odd.series(&metrics).denied();
    }
    let of_methods = metrics.series().into_iter().filter(|counted| counted.tool.is_none());
    let of_methods: Vec<_> = of_methods.map(|counted| (counted.method.to_string(), counted.series.denials())).collect();
    assert_eq!(of_methods, [(OTHER.to_owned(), 5)]);
}

#[test]
fn what_was_counted_of_a_removed_tool_is_counted_among_the_others() {
    let metrics = SourceMetrics::default();
    let held = call("files__held");
    held.series(&metrics).ended(Ending::Error, Duration::from_secs(1));
    for _ in 0..2 {
        call("files__gone").series(&metrics).ended(Ending::Ok, Duration::from_secs(1));
    }
    metrics.keep_tools([].iter());
    assert_eq!(counted(&metrics, "files__gone"), None);
    assert_eq!(counted(&metrics, "files__held"), Some(1), "a session still has it");
    assert_eq!(counted(&metrics, OTHER), Some(2));
    assert_eq!(metrics.totals(), serde_json::json!({ "error": 1, "ok": 2, "denied": 0 }));
}

#[test]
fn the_text_is_what_monitoring_systems_read() {
    let shown = text(|families| {
        families.counter("calls", "All of them", [(vec![("tool", "a\"b\\c\nd")], 7)])?;
        families.gauge("open", "Now", [(vec![], 3)])?;
        let histogram = Histogram::new(&[0.5, 1.0]);
        histogram.record(Duration::from_millis(750));
        families.durations("took", "Time", [(vec![("source", "files")], &histogram)])
    });
    let expected = r#"# HELP calls All of them
# TYPE calls counter
calls_total{tool="a\"b\\c\nd"} 7
# HELP open Now
# TYPE open gauge
open 3
# HELP took_seconds Time
# TYPE took_seconds histogram
# UNIT took_seconds seconds
took_seconds_sum{source="files"} 0.75
took_seconds_count{source="files"} 1
took_seconds_bucket{le="0.5",source="files"} 0
took_seconds_bucket{le="1.0",source="files"} 1
took_seconds_bucket{le="+Inf",source="files"} 1
# EOF
"#;
    assert_eq!(shown, expected);
}
