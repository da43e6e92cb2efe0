//! Folders of campaigns that are interrupted, continued or refused, on simulated engines.

use std::fs;
use std::sync::atomic::Ordering;

use crate::campaign::{row, table};
use crate::simulated::campaign::{CAMPAIGN, measure, measure_so};
use crate::simulated::engine::World;
use sidestep_bench::campaign::file::Campaign;
use sidestep_bench::campaign::log::{self, Log, Record};
use sidestep_bench::campaign::{report, run};
use sidestep_bench::result::Cell;

#[test]
fn an_interrupted_campaign_resumes() {
    let whole = {
        let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
        assert_eq!(measure(CAMPAIGN, folder.path(), &world), Ok(true));
        world.trials.get()
    };
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let mut rounds = 0;
    loop {
        rounds += 1;
        world.interrupted.store(false, Ordering::Release);
        world.interrupt_after.set(Some(world.trials.get() + 150));
        let done = measure(CAMPAIGN, folder.path(), &world).expect("no error");
        // If a crash truncated the last line, the next start repeats that measurement.
        let path = folder.path().join(log::TRIALS);
        if !done {
            let mut text = fs::read(&path).unwrap();
            text.extend(b"{\"record\":\"measu");
            fs::write(&path, text).unwrap();
            assert!(!report::read(folder.path()).expect("so far").complete);
            continue;
        }
        break;
    }
    assert!(rounds > 2, "{rounds}");
    // Each interruption discards at most the measurement in progress.
    assert!(
        world.trials.get() < whole + rounds * 64,
        "{} of {whole}",
        world.trials.get()
    );
    let (_, records) = log::read(folder.path()).expect("records");
    let mut measured: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::Measured(measured) => {
                Some((measured.point.clone(), measured.run, measured.find))
            }
            _ => None,
        })
        .collect();
    let all = measured.len();
    measured.sort_by_key(|it| format!("{it:?}"));
    measured.dedup();
    // Each of three runs has 5 points with 4 metrics, and 3 cases on 2 engines with 1 metric.
    assert_eq!(
        (all, measured.len()),
        (5 * 4 * 3 + 6 * 3, 5 * 4 * 3 + 6 * 3)
    );
    assert!(
        !records
            .iter()
            .any(|record| matches!(record, Record::Failed(_))),
        "a signal is no failure"
    );

    let before = world.trials.get();
    world.interrupt_after.set(None);
    assert_eq!(measure(CAMPAIGN, folder.path(), &world), Ok(true));
    assert_eq!(world.trials.get(), before, "nothing is missing");
}

#[test]
fn a_part_of_a_campaign_is_measured_first_and_the_rest_later() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let measured = || {
        let (_, records) = log::read(folder.path()).expect("records");
        let points = records.iter().filter_map(|record| match record {
            Record::Measured(it) => Some((
                it.point.group.clone(),
                it.point.engine.clone(),
                it.point.case.sids,
            )),
            _ => None,
        });
        let ceilings = records
            .iter()
            .filter(|it| matches!(it, Record::Ceiling { .. }));
        let mut points: Vec<_> = points.collect();
        points.sort();
        points.dedup();
        let ended = records.contains(&Record::End);
        (points, ceilings.count(), ended)
    };
    // `*` is a wildcard, and each pattern adds points.
    let only = ["segments: fast*2 SIDs", "segments: slow end, 4"].map(run::Pattern::new);
    let part = || measure_so(CAMPAIGN, folder.path(), &world, false, &only);
    assert_eq!(part(), Ok(true));
    let point = |engine: &str, sids| ("segments".to_owned(), engine.to_owned(), sids);
    assert_eq!(
        measured(),
        (vec![point("fast", 2), point("slow", 4)], 2, false)
    );
    let report = report::read(folder.path()).expect("report");
    assert!(!report.complete, "a part is not all");
    let trials = world.trials.get();
    assert_eq!(part(), Ok(true));
    assert_eq!(world.trials.get(), trials, "nothing is missing of it");

    assert_eq!(measure(CAMPAIGN, folder.path(), &world), Ok(true));
    let command = &report::read(folder.path()).expect("report").command;
    assert!(!command.iter().any(|word| word.starts_with("--only")));
    let (points, ceilings, ended) = measured();
    // There is one ceiling per frame length: for zero, one, two and four segments.
    assert_eq!((points.len(), ceilings, ended), (5 - 1 + 6, 4, true));
    assert!(report::read(folder.path()).expect("report").complete);
}

#[test]
fn a_folder_of_another_campaign_is_refused() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let short = CAMPAIGN.replace("runs: 3", "runs: 1");
    assert_eq!(measure(&short, folder.path(), &world), Ok(true));
    let commented = format!("# Once more.\n{short}");
    assert_eq!(measure(&commented, folder.path(), &world), Ok(true));

    let changed = short.replace("epsilon: 0.01", "epsilon: 0.02");
    let error = measure(&changed, folder.path(), &world).unwrap_err();
    assert!(
        error.contains("differs in: search.epsilon: 0.01, now 0.02."),
        "{error}"
    );
    let error = measure_so(&short, folder.path(), &world, true, &[]).unwrap_err();
    assert!(error.contains("--quick: false, now true"), "{error}");

    let open = Log::open(folder.path(), &short).expect("free");
    let error = measure(&short, folder.path(), &world).unwrap_err();
    assert!(error.ends_with("another `bench run` writes it"), "{error}");
    drop(open);

    let begun = tempfile::tempdir().unwrap();
    fs::write(begun.path().join("campaign.new"), "schema").unwrap();
    assert_eq!(
        measure(&short, begun.path(), &world),
        Ok(true),
        "a killed beginning"
    );

    let foreign = tempfile::tempdir().unwrap();
    fs::write(foreign.path().join("letter.txt"), "Dear").unwrap();
    let error = measure(&short, foreign.path(), &world).unwrap_err();
    assert!(error.contains("not the folder of a campaign"), "{error}");
    assert_eq!(fs::read_dir(foreign.path()).unwrap().count(), 1);

    let path = folder.path().join(log::TRIALS);
    let newer = fs::read_to_string(&path)
        .unwrap()
        .replacen("\"schema\":1", "\"schema\":2", 1);
    fs::write(&path, newer).unwrap();
    let error = measure(&short, folder.path(), &world).unwrap_err();
    assert!(
        error.ends_with("schema 2, but this version reads schema 1"),
        "{error}"
    );
}

#[test]
fn a_failed_engine_is_reported_and_retried() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let short = CAMPAIGN.replace("runs: 3", "runs: 1");
    world.broken.set(Some("slow"));
    assert_eq!(measure(&short, folder.path(), &world), Ok(true));
    let first = report::read(folder.path()).expect("report");
    let failed = first
        .refusals
        .iter()
        .find(|refusal| refusal.at == "ipv6, 64 bytes, run 1");
    assert_eq!(failed.expect("said").why, "its first packet was wrong");
    let rates = table(&first, "behaviors-pdr-table");
    // Existing results do not hide the failure.
    let (text, mut records) = log::read(folder.path()).expect("records");
    let campaign = Campaign::parse(&text).expect("campaign");
    let of_slow = records.iter().find_map(|record| match record {
        Record::Failed(failed) => Some(failed.point.clone()),
        _ => None,
    });
    let pdr = records.iter().find_map(|record| match record {
        Record::Measured(measured) => Some(measured.clone()),
        _ => None,
    });
    let mut pdr = pdr.expect("measured");
    pdr.point = of_slow.expect("failed");
    records.push(Record::Measured(pdr));
    let partly = report::report(&campaign, &records).expect("report");
    assert_eq!(partly.refusals.len(), first.refusals.len());
    assert!(
        rates
            .rows
            .iter()
            .all(|row| row[1] != Cell::Text("slow".into()))
    );

    world.broken.set(None);
    assert_eq!(measure(&short, folder.path(), &world), Ok(true));
    let second = report::read(folder.path()).expect("report");
    assert_eq!(second.refusals.len(), 1, "{:?}", second.refusals);
    row(table(&second, "behaviors-pdr-table"), "plain IPv6", "slow");
}
