//! Campaigns from the file to the report, on simulated engines.

use std::fs;

use crate::simulated::campaign::{CAMPAIGN, measure, measure_so};
use crate::simulated::engine::{World, engines, vocabulary};
use sidestep_bench::campaign::file::{Campaign, Find};
use sidestep_bench::campaign::log::{self, Record};
use sidestep_bench::campaign::plan::Plan;
use sidestep_bench::campaign::report;
use sidestep_bench::result::{Cell, Kind, Report, Table};

pub fn table<'a>(report: &'a Report, id: &str) -> &'a Table {
    let mut tables = report.tables.iter();
    tables
        .find(|table| table.id == id)
        .unwrap_or_else(|| panic!("no table {id}"))
}

/// Returns the non-empty cells of an engine's row for a case, each with its column head.
pub fn row(table: &Table, case: &str, engine: &str) -> Vec<(String, Cell)> {
    let text = |text: &str| Cell::Text(text.into());
    let mut rows = table.rows.iter();
    let row = rows.find(|row| row[0] == text(case) && row[1] == text(engine));
    let cells = table
        .heads
        .iter()
        .cloned()
        .zip(row.expect("a row").iter().cloned());
    cells.filter(|(_, cell)| *cell != text("")).collect()
}

pub fn number(row: &[(String, Cell)], head: &str) -> f64 {
    match row.iter().find(|(name, _)| name == head) {
        Some((_, Cell::Number(value))) => *value,
        other => panic!("{head}: {other:?}"),
    }
}

#[test]
fn a_campaign_becomes_the_table_of_the_studies() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    assert_eq!(measure(CAMPAIGN, folder.path(), &world), Ok(true));
    let report = report::read(folder.path()).expect("report");
    assert!(report.complete);
    let sink = &report.machine.facts["slow: sink"];
    assert!(
        sink.starts_with("TC in ") && sink.ends_with("otherwise XDP"),
        "{sink}"
    );
    let rates = table(&report, "behaviors-pdr-table");

    let slow = row(rates, "plain IPv6", "slow");
    let mean = number(&slow, "mean (kpps)");
    assert!((199.0..=201.1).contains(&mean), "{slow:?}");
    assert!((number(&slow, "% of plain IPv6") - 100.0).abs() < 1e-9);
    assert_eq!(number(&slow, "runs") as u32, 3);
    assert!(!slow.iter().any(|(head, _)| head == "note"), "{slow:?}");

    let half = row(rates, "End", "slow");
    assert!(
        (number(&half, "% of plain IPv6") - 50.0).abs() < 1.0,
        "{half:?}"
    );

    let fast = row(rates, "plain IPv6", "fast");
    let note = fast
        .iter()
        .find(|(head, _)| head == "note")
        .expect("a note");
    assert!(
        matches!(&note.1, Cell::Text(text) if text.starts_with("limited by the generator: 9")),
        "{fast:?}"
    );

    let share = row(rates, "End", "fast");
    let note = "the generator limits the baseline: the real share is lower";
    assert!(
        share.contains(&("note".into(), Cell::Text(note.into()))),
        "{share:?}"
    );
    assert!(!half.iter().any(|(head, _)| head == "note"), "{half:?}");

    let published = row(rates, "End", "Linux 4.12 (other hardware)");
    assert!((number(&published, "published (kpps, other hardware)") - 912.5).abs() < 1e-9);
    assert!((number(&published, "published (% of plain IPv6)") - 78.0).abs() < 1e-9);
    assert!(published.contains(&("note".into(), Cell::Text("A study".into()))));

    let refusals: Vec<_> = report
        .refusals
        .iter()
        .map(|it| (&*it.subject, &*it.at, &*it.why))
        .collect();
    assert_eq!(refusals, [("fast", "end.as, 1 SID, 64 bytes", "no end.as")]);
    let commands = table(&report, "commands");
    let again =
        "sidestep-bench run campaign.yaml -o again --only 'behaviors: fast end, 1 SID, 64 bytes'";
    assert!(
        commands
            .rows
            .iter()
            .any(|row| row[2] == Cell::Text(again.into())),
        "{commands:?}"
    );
    assert!(
        commands
            .rows
            .iter()
            .any(|row| row[2] == Cell::Text("set up fast end".into()))
    );
}

#[test]
fn reversed_verdicts_are_noted_at_the_point() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    assert_eq!(measure(CAMPAIGN, folder.path(), &world), Ok(true));
    let (text, mut records) = log::read(folder.path()).expect("records");
    for record in &mut records {
        if let Record::Measured(measured) = record
            && measured.find == Find::Pdr
            && (
                measured.point.engine.as_str(),
                &*measured.point.case.behavior,
            ) == ("slow", "end")
        {
            let found = measured.found.as_mut().expect("a search");
            assert_eq!(found.reversed, 0, "nothing disturbs this system");
            found.reversed = measured.run * 2;
        }
    }
    let report = report::report(&Campaign::parse(&text).unwrap(), &records).expect("report");
    let slow = row(table(&report, "behaviors-pdr-table"), "End", "slow");
    let note = "6 verdicts were reversed in 2 of 3 runs";
    assert!(
        slow.contains(&("note".into(), Cell::Text(note.into()))),
        "{slow:?}"
    );
}

#[test]
fn pictures_are_boxes_lines_curves_and_distributions() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    assert_eq!(measure(CAMPAIGN, folder.path(), &world), Ok(true));
    let report = report::read(folder.path()).expect("report");
    let section = |id: &str| {
        let mut sections = report.sections.iter();
        sections
            .find(|section| section.id == id)
            .unwrap_or_else(|| panic!("no section {id}"))
    };
    assert_eq!(section("behaviors-pdr").kind, Kind::Box);
    let published = section("behaviors-pdr")
        .series
        .iter()
        .find(|series| series.published);
    assert_eq!(published.expect("published").points[0].x as usize, 1);

    let segments = section("segments-ndr");
    assert_eq!(
        (segments.kind, segments.x.name.as_str()),
        (Kind::Line, "segments")
    );
    let places: Vec<f64> = segments.series[0]
        .points
        .iter()
        .map(|point| point.x)
        .collect();
    assert_eq!(places, [1.0, 2.0, 4.0]);

    // The curve ends at 1.2 times the PDR, above the engine's capacity, so the delivery ratio
    // falls.
    let delivery = section("behaviors-end-delivery");
    let last = delivery.series[0].points.last().expect("points");
    assert!((last.value - 100.0 / 1.2).abs() < 1.0, "{last:?}");
    let keys: Vec<_> = delivery.series[0]
        .points
        .iter()
        .map(|it| it.key.as_deref())
        .collect();
    assert_eq!(
        (keys[0], keys[11]),
        (Some("10 % of PDR"), Some("120 % of PDR"))
    );
    let throughput = section("behaviors-end-throughput");
    let slow = &throughput.series[0].points;
    assert!(
        (slow[11].value - 100.0).abs() < 0.1 && (slow[0].x - slow[0].value).abs() < 0.1,
        "{slow:?}"
    );

    let latency = &section("behaviors-ipv6-latency").series[0];
    let steps: Vec<_> = latency
        .points
        .iter()
        .map(|point| (point.x, point.value))
        .collect();
    assert_eq!(steps, [(2.0, 0.5), (4.0, 0.75), (8.0, 1.0)]);
    let latencies = table(&report, "behaviors-latency-table");
    let fast = row(latencies, "plain IPv6", "fast");
    for (head, expected) in [
        ("max (µs)", 7.9),
        ("IPDV, mean (µs)", 1.5),
        ("PDV, p99.9 (µs)", 6.0),
    ] {
        assert!((number(&fast, head) - expected).abs() < 1e-9, "{fast:?}");
    }
    let titled = &section("behaviors-end-throughput").title;
    assert_eq!(titled, "behaviors: End, what comes through");

    let page = sidestep_bench::report::page(&report);
    assert!(!page.contains("Nothing was measured."));
}

#[test]
fn engines_take_turns_from_run_to_run() {
    let campaign = Campaign::parse(CAMPAIGN).unwrap();
    let engines = engines(&World::default());
    let plan = Plan::of(&campaign, &engines, &vocabulary()).unwrap();
    let units = plan.units(&campaign);
    let first = |run| {
        units
            .iter()
            .find(|unit| unit.run == run)
            .unwrap()
            .point
            .engine
            .as_str()
    };
    assert_eq!([first(0), first(1), first(2)], ["slow", "fast", "slow"]);
    assert!(units.is_sorted_by_key(|unit| unit.run));
    let sequential = Campaign::parse(&format!("{CAMPAIGN}order: sequential\n")).unwrap();
    let units = plan.units(&sequential);
    assert_eq!([units[0].run, units[1].run, units[2].run], [0, 1, 2]);
    assert!(units[..3].iter().all(|unit| unit.point == units[0].point));
    assert_eq!(campaign.finds(&campaign.groups[1]), [Find::Ndr]);
}

#[test]
fn the_default_number_of_segments_is_one_or_the_minimum() {
    let text = CAMPAIGN.replace("[ipv6, end, end.as]", "[ipv6, end, service.end]");
    let campaign = Campaign::parse(&text).unwrap();
    let plan = Plan::of(&campaign, &engines(&World::default()), &vocabulary()).unwrap();
    let slow = plan
        .points
        .iter()
        .filter(|point| (&*point.group, &*point.engine) == ("behaviors", "slow"));
    let sids: Vec<u32> = slow.map(|point| point.case.sids).collect();
    assert_eq!(sids, [0, 1, 2]);
}

#[test]
fn rates_are_compared_with_the_baseline_that_has_the_fewest_rules() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let text = CAMPAIGN
        .replace("runs: 3", "runs: 2")
        .replace("[ipv6, end, end.as]", "[end]")
        .replace("- name: segments", "- name: rules")
        .replace(
            "behaviors: [end]\n  sids: [1, 2, 4]",
            "behaviors: [ipv6]\n  rules: [0, 80]",
        );
    assert_eq!(measure(&text, folder.path(), &world), Ok(true));
    let report = report::read(folder.path()).expect("report");
    let rates = table(&report, "rules-ndr-table");
    let of = |case| number(&row(rates, case, "slow"), "% of plain IPv6");
    assert!(
        (of("plain IPv6, 0 rules") - 100.0).abs() < 1e-9,
        "{rates:?}"
    );
    assert!(of("plain IPv6, 80 rules") < 60.0, "{rates:?}");
}

#[test]
fn every_report_of_a_quick_run_says_that_its_rates_are_inaccurate() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    assert_eq!(
        measure_so(CAMPAIGN, folder.path(), &world, true, &[]),
        Ok(true)
    );
    let report = report::read(folder.path()).expect("report");
    let search = &report.machine.facts["rate search"];
    assert!(search.contains("epsilon 0.05"), "{search}");
}

#[test]
fn a_machine_with_too_few_cores_is_no_error_of_the_file() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let text = CAMPAIGN.replacen("sids: [1, 2, 4]", "cores: [1, 2, 8]\n  flows: [8]", 1);
    assert_eq!(measure(&text, folder.path(), &world), Ok(true));
    let report = report::read(folder.path()).expect("report");
    let rates = table(&report, "segments-ndr-table");
    row(rates, "End, 1 core", "slow");
    row(rates, "End, 2 cores", "fast");
    let refused = report
        .refusals
        .iter()
        .filter(|it| it.at.contains("8 cores"));
    let refused: Vec<_> = refused.map(|it| (&*it.subject, &*it.why)).collect();
    assert_eq!(refused, [("slow", "no 8 cores"), ("fast", "no 8 cores")]);
    let ceilings = table(&report, "ceiling");
    let of_two = ceilings
        .rows
        .iter()
        .find(|row| row[0] == Cell::Text("128 bytes, 8 flows, 2 cores".into()));
    assert!(of_two.is_some(), "{ceilings:?}");
}

#[test]
fn a_curve_is_measured_at_the_given_rates() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let text = CAMPAIGN
        .replace("runs: 3", "runs: 2")
        .replace("find: [ndr]", "find: [curve]\n  rates: [50000, 150000]")
        .replace("sids: [1, 2, 4]", "sids: [1]");
    assert_eq!(measure(&text, folder.path(), &world), Ok(true));
    let report = report::read(folder.path()).expect("report");
    let sections = || report.sections.iter().map(|section| section.id.as_str());
    assert!(!sections().any(|id| id.starts_with("segments-pdr")));
    let mut all = report.sections.iter();
    let curve = all.find(|it| it.id.starts_with("segments-") && it.id.ends_with("-throughput"));
    let curve = curve.unwrap_or_else(|| panic!("{:?}", sections().collect::<Vec<_>>()));
    assert!(
        curve.note.ends_with("all engines received the same rates."),
        "{}",
        curve.note
    );
    let points = curve.series.iter().flat_map(|series| &series.points);
    let points: Vec<_> = points
        .map(|point| {
            (
                point.key.clone().unwrap_or_default(),
                point.value.round(),
                point.rounds.len(),
            )
        })
        .collect();
    // The slow engine forwards 100,000 packets/s with this behavior.
    let at = |key: &str, kpps| (format!("{key} packets/s"), kpps, 2);
    assert_eq!(
        points,
        [
            at("50000", 50.0),
            at("150000", 100.0),
            at("50000", 50.0),
            at("150000", 150.0)
        ]
    );
}

#[test]
fn a_pdr_of_0_leaves_out_measurements_at_its_shares() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    world.dead.set(Some("slow"));
    let text = CAMPAIGN.replace("runs: 3", "runs: 1");
    assert_eq!(measure(&text, folder.path(), &world), Ok(true));
    let first = report::read(folder.path()).expect("report");
    assert!(first.complete);
    assert_eq!(first.refusals.len(), 1, "{:?}", first.refusals);
    let lost = row(table(&first, "behaviors-pdr-table"), "plain IPv6", "slow");
    assert!(number(&lost, "mean (kpps)").abs() < 1e-9, "{lost:?}");
    let note = Cell::Text("packets lost at every rate".into());
    assert!(lost.contains(&("note".into(), note)), "{lost:?}");
    let trials = world.trials.get();
    assert_eq!(measure(&text, folder.path(), &world), Ok(true));
    assert_eq!(world.trials.get(), trials, "nothing is missing");
}

#[test]
fn reordered_and_duplicated_packets_are_noted_at_the_rate() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    world.disorderly.set(Some("fast"));
    let text = CAMPAIGN.replace("runs: 3", "runs: 1");
    assert_eq!(measure(&text, folder.path(), &world), Ok(true));
    let report = report::read(folder.path()).expect("report");
    let rates = table(&report, "behaviors-mrr-table");
    let note = |engine| {
        let row = row(rates, "End", engine);
        row.into_iter().find(|(head, _)| head == "note")
    };
    let expected = "packets arrived out of order in 1 of 1 trials; packets arrived more than once in 1 of 1 trials";
    let (_, fast) = note("fast").expect("a note");
    assert!(
        matches!(&fast, Cell::Text(text) if text.contains(expected)),
        "{fast:?}"
    );
    let slow = note("slow");
    assert!(
        !matches!(&slow, Some((_, Cell::Text(text))) if text.contains("packets came")),
        "{slow:?}"
    );
}

#[test]
fn trials_with_steal_time_are_repeated_and_counted() {
    let text = CAMPAIGN.replace("runs: 3", "runs: 1");
    let measured = |disturbed: usize| {
        let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
        world.disturbed.set(disturbed);
        assert_eq!(measure(&text, folder.path(), &world), Ok(true));
        let (_, records) = log::read(folder.path()).expect("records");
        let report = report::read(folder.path()).expect("report");
        let note = report
            .notes
            .iter()
            .find(|note| note.contains("are repeated:"));
        (
            world.trials.get(),
            records,
            note.cloned().expect("a note"),
            report,
        )
    };
    let (trials, _, note, calm) = measured(0);
    assert!(note.ends_with("repeated: 0 in this report."), "{note}");

    let (more, records, note, busy) = measured(5);
    assert_eq!(more, trials + 5);
    assert!(note.ends_with("repeated: 5 in this report."), "{note}");
    let repeated = records.iter().filter_map(|record| match record {
        Record::Measured(measured) => Some(measured.disturbed.expect("observed").repeated),
        _ => None,
    });
    assert_eq!(repeated.sum::<u32>(), 5);
    let [calm, busy] = [&calm, &busy].map(|report| {
        let rates = table(report, "behaviors-pdr-table");
        number(&row(rates, "plain IPv6", "slow"), "mean (kpps)")
    });
    assert!((calm - busy).abs() < 1e-9, "{calm} and {busy}");
}

#[test]
fn disturbed_trials_count_once_the_time_for_repetitions_is_spent() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let text = CAMPAIGN
        .replace("runs: 3", "runs: 1")
        .replace("[pdr, mrr, curve, latency]", "[mrr]")
        .replace("find: [ndr]", "find: [mrr]")
        .replace("behavior: end, kpps", "behavior: end, find: mrr, kpps");
    world.disturbed.set(usize::MAX);
    assert_eq!(measure(&text, folder.path(), &world), Ok(true));
    let report = report::read(folder.path()).expect("report");
    let kept =
        "Another 11 such trials count, because a measurement repeats trials for at most 60 s.";
    assert!(
        report.notes.iter().any(|note| note.ends_with(kept)),
        "{:?}",
        report.notes
    );
    let slow = row(table(&report, "behaviors-mrr-table"), "End", "slow");
    let note = "1 disturbed trials were not repeated for lack of time";
    assert!(
        matches!(slow.last(), Some((_, Cell::Text(text))) if text.contains(note)),
        "{slow:?}"
    );
}

#[test]
fn rates_are_compared_with_linux_and_marked_if_they_vary() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    assert_eq!(measure(CAMPAIGN, folder.path(), &world), Ok(true));
    // The slow engine stands for Linux.
    for name in [log::CAMPAIGN, log::TRIALS] {
        let path = folder.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        let text = text
            .replace("\"slow\"", "\"linux\"")
            .replace("[slow,", "[linux,");
        fs::write(path, text).unwrap();
    }
    let (text, mut records) = log::read(folder.path()).expect("records");
    let campaign = Campaign::parse(&text).expect("campaign");
    let fast = |records: &[Record]| {
        let report = report::report(&campaign, records).expect("report");
        let row = row(table(&report, "segments-ndr-table"), "End, 2 SIDs", "fast");
        let text = sidestep_bench::report::markdown(&report);
        (row, text)
    };
    let (steady, text) = fast(&records);
    let times = number(&steady, "times Linux");
    assert!((times - 4.5).abs() < 0.1, "{steady:?}");
    let sentence = "- In “segments: NDR”, fast reaches 4.5 times the rate of Linux.";
    assert!(text.contains(sentence), "{text}");
    let marked = |row: &[(String, Cell)]| {
        row.iter()
            .any(|(_, cell)| matches!(cell, Cell::Text(text) if text.contains("not citable")))
    };
    assert!(!marked(&steady), "{steady:?}");

    for record in &mut records {
        if let Record::Measured(measured) = record
            && measured.run == 1
            && let Some(found) = &mut measured.found
        {
            found.rate *= 1.3;
        }
    }
    assert!(marked(&fast(&records).0));
}
