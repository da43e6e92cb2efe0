//! Files of a report: a self-contained page, and equal numbers in all formats.

use std::fs;
use std::path::{Path, PathBuf};

use scraper::{Html, Selector};
use sidestep_bench::report::{self, Error};
use sidestep_bench::result::{Kind, Report, Section};

fn page() -> Html {
    Html::parse_document(&report::page(&crate::sample::report()))
}

fn all<'a>(page: &'a Html, selector: &str) -> Vec<scraper::ElementRef<'a>> {
    page.select(&Selector::parse(selector).unwrap()).collect()
}

fn text(page: &Html, selector: &str) -> Vec<String> {
    all(page, selector)
        .iter()
        .map(|found| found.text().collect())
        .collect()
}

/// Compares with a golden file. The message names the path of the actual output.
#[track_caller]
fn assert_golden(name: &str, written: &str) {
    let actual = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&actual, written).unwrap();
    let golden: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/bench/golden", name]
        .iter()
        .collect();
    let (golden, actual) = (golden.display(), actual.display());
    assert!(
        fs::read_to_string(golden.to_string()).unwrap() == written,
        "diff {golden} {actual}"
    );
}

#[test]
fn the_page_is_well_formed() {
    let page = page();
    assert_eq!(page.errors, Vec::<String>::new());
    let ids: Vec<_> = all(&page, "[id]")
        .iter()
        .filter_map(|found| found.attr("id"))
        .collect();
    let unique: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), unique.len(), "an id stands twice: {ids:?}");
}

#[test]
fn the_page_is_self_contained_and_runs_no_script() {
    let page = page();
    for tag in [
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "foreignObject",
        "use",
        "image",
    ] {
        assert!(all(&page, tag).is_empty(), "<{tag}>");
    }
    for link in all(&page, "[href], [src]") {
        let target = link.attr("href").or(link.attr("src")).unwrap_or_default();
        assert!(target.starts_with('#'), "{target}");
    }
    let style = text(&page, "style").concat();
    assert!(
        !style.contains("url(") && !style.contains("@import"),
        "{style}"
    );
}

#[test]
fn every_plot_has_a_description_and_a_table() {
    let page = page();
    let report = crate::sample::report();
    for Section { id, series, .. } in &report.sections {
        for width in ["wide", "narrow"] {
            let svg = all(&page, &format!("#{id} figure.{width} > svg[role=img]"));
            let named = svg[0].attr("aria-labelledby").unwrap();
            assert_eq!(named, format!("{id}-{width}-title {id}-{width}-desc"));
            let printed = text(&page, &format!("#{id}-{width}-desc")).concat();
            for series in series {
                assert!(printed.contains(&series.name), "{printed}");
            }
        }
        let cells = text(&page, &format!("#{id} table")).concat();
        for series in series {
            assert!(
                cells.contains(&series.name),
                "{id} has no {} in its table",
                series.name
            );
        }
    }
    assert_eq!(all(&page, "svg").len(), 2 * report.sections.len());
}

#[test]
fn every_link_of_the_contents_has_a_section() {
    let page = page();
    let links = all(&page, "nav a");
    assert_eq!(links.len(), 4 + 1 + 2);
    for link in links {
        let target = link.attr("href").unwrap();
        assert_eq!(all(&page, &format!("section{target}")).len(), 1, "{target}");
    }
}

#[test]
fn plots_use_the_page_colours_and_one_per_engine() {
    let html = report::page(&crate::sample::report());
    for variable in ["--text:", "--axis:", "--grid:", "--ink-0:", "--ink-7:"] {
        assert_eq!(
            html.matches(variable).count(),
            2,
            "{variable} is not defined for light and dark"
        );
    }
    let page = Html::parse_document(&html);
    let marks = all(&page, "#lookup figure.wide [fill^='var(--ink']");
    let inks: std::collections::BTreeSet<_> =
        marks.iter().filter_map(|mark| mark.attr("fill")).collect();
    // Two of three series are from Linux: a measured and a published one.
    assert_eq!(
        inks.into_iter().collect::<Vec<_>>(),
        ["var(--ink-0)", "var(--ink-1)"]
    );
    let bare = all(&page, "svg [fill^='#'], svg [stroke^='#']");
    assert!(bare.is_empty(), "{:?}", bare[0].html());
}

#[test]
fn the_result_opens_the_page() {
    let html = report::page(&crate::sample::report());
    let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
    let result = place("id=\"result\"");
    assert!(result < place("<pre") && result < place("<nav") && result < place("<svg"));
    let page = Html::parse_document(&html);
    assert_eq!(
        text(&page, "#result li")[..2],
        [
            "In “Lookup time”, Sidestep is 23 times as fast as Linux.",
            "In “Rates”, Sidestep reaches 2.5 times the rate of Linux.",
        ]
    );
    let heads = text(&page, "#result th[scope=col]");
    assert!(heads.contains(&"Sidestep, times Linux".into()), "{heads:?}");
    for id in ["lookup", "rates"] {
        let heads = text(&page, &format!("#{id} th[scope=col]"));
        assert!(heads.contains(&"times Linux".into()), "{heads:?}");
    }
    assert!(!text(&page, "#spread").concat().contains("times Linux"));
}

#[test]
fn ticks_of_packet_rates_have_their_unit() {
    let words = text(&page(), "#rates figure.wide svg > text");
    assert!(words.contains(&"3 Mpps".into()), "{words:?}");
    assert!(words.contains(&"rate".into()), "{words:?}");
    assert!(!words.iter().any(|word| word.ends_with('k')), "{words:?}");
}

#[test]
fn points_that_vary_by_more_than_a_tenth_are_marked() {
    let page = page();
    let marked = |id: &str| {
        let cells = text(&page, &format!("#{id} details td"));
        let marks = cells.iter().filter(|cell| cell.contains("not citable"));
        marks.count()
    };
    assert_eq!(
        [marked("lookup"), marked("rates"), marked("spread")],
        [2, 0, 2]
    );
    let result = text(&page, "#result li");
    let varying = "The coefficient of variation of 4 of 9 points is above 10 %. Their notes mark \
                   them as not citable.";
    assert_eq!(result.last().map(String::as_str), Some(varying));

    let mut report = crate::sample::report();
    report.sections = vec![crate::sample::rates()];
    let page = Html::parse_document(&report::page(&report));
    let steady = "The coefficient of variation of each point is at most 10 %.";
    assert_eq!(text(&page, "#result li")[1], steady);
}

#[test]
fn every_table_scrolls_by_itself() {
    let page = page();
    let scrolling = all(&page, "div.scroll > table").len();
    assert_eq!(scrolling, all(&page, "table").len());
    let style = text(&page, "style").concat();
    assert!(style.contains(".scroll { overflow-x: auto;"), "{style}");
}

#[test]
fn markdown_embeds_one_overview() {
    let mut report = crate::sample::report();
    let overview = |report: &Report| report::findings::overview(report).expect("an overview");
    assert_eq!(overview(&report).title, "Lookup time, times Linux");
    assert_eq!(report::markdown(&report).matches("![").count(), 1);

    // Without Linux, the first plot is embedded.
    for section in &mut report.sections {
        section.series.retain(|series| series.subject != "linux");
    }
    assert_eq!(overview(&report).title, "Lookup time");
    let text = report::markdown(&report);
    assert!(text.contains("![Lookup time](overview.png)"), "{text}");
    assert!(!text.contains(", times Linux"), "{text}");
}

#[test]
fn points_that_a_plot_cannot_show_are_mentioned() {
    let page = page();
    assert_eq!(
        text(&page, "#lookup .hint"),
        ["One point is in the table only: a logarithmic axis has no zero."]
    );
    assert!(text(&page, "#refusals").concat().contains("no memory"));
    assert!(
        text(&page, ".warning")
            .concat()
            .starts_with("Not complete.")
    );
}

#[test]
fn series_with_one_common_position_are_rows() {
    let mut report = crate::sample::report();
    for series in &mut report.sections[0].series {
        series.points.truncate(1);
        series.points[0].x = 1000.0;
    }
    let page = Html::parse_document(&report::page(&report));
    let words = text(&page, "#lookup figure.wide svg > text[text-anchor=end]");
    assert_eq!(words, ["Linux 4.4 (other hardware)", "Linux", "Sidestep"]);
}

#[test]
fn a_section_without_points_is_mentioned_and_not_drawn() {
    for kind in [Kind::Line, Kind::Bars, Kind::Box, Kind::Cdf] {
        let mut report = crate::sample::report();
        report.sections = vec![Section {
            kind,
            series: vec![],
            ..crate::sample::lookup()
        }];
        let page = Html::parse_document(&report::page(&report));
        assert!(all(&page, "svg").is_empty());
        assert!(
            text(&page, "#lookup")
                .concat()
                .contains("Nothing was measured.")
        );
        assert!(!report::markdown(&report).contains("lookup.png"));
    }
}

#[test]
fn markdown_holds_every_number() {
    assert_golden("report.md", &report::markdown(&crate::sample::report()));
}

#[test]
fn a_folder_contains_the_report_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("new/folder");
    let report = crate::sample::report();
    report::write(&report, &folder).unwrap();
    assert_eq!(report::read(&folder).unwrap(), report);
    assert_eq!(report::read(&folder.join("report.json")).unwrap(), report);
    for name in ["lookup.csv", "levels.csv"] {
        assert_golden(name, &fs::read_to_string(folder.join(name)).unwrap());
    }
    for Section { id, .. } in &report.sections {
        assert_eq!(
            &fs::read(folder.join(format!("{id}.png"))).unwrap()[1..4],
            b"PNG"
        );
    }
}

#[test]
fn all_files_are_rendered_again_from_the_json() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut report = crate::sample::report();
    report.sections.truncate(1);
    report::write(&report, folder).unwrap();
    let written = names(folder);
    assert_eq!(
        written,
        [
            "levels.csv",
            "lookup.csv",
            "lookup.png",
            "overview.png",
            "report.html",
            "report.json",
            "report.md"
        ]
    );
    for name in written.iter().filter(|name| *name != "report.json") {
        fs::remove_file(folder.join(name)).unwrap();
    }
    report::render(&report::read(folder).unwrap(), folder).unwrap();
    assert_eq!(names(folder), written);
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_of_another_format_is_refused_with_its_name_and_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let refused = |content: &str| {
        fs::write(&path, content).unwrap();
        report::read(folder.path()).unwrap_err()
    };
    let name = path.display();
    let error = refused(r#"{"schema": 99}"#);
    assert!(matches!(error, Error::Schema { found: 99, .. }));
    assert_eq!(
        error.to_string(),
        format!("{name}: schema 99, but this version reads schema 1")
    );
    let error = refused("{\n  \"schema\": 1,\n  ?").to_string();
    assert!(
        error.starts_with(&format!("{name}: ")) && error.contains("line 3"),
        "{error}"
    );
    assert!(
        refused(r#"{"schema": 1}"#)
            .to_string()
            .contains("missing field")
    );
    fs::remove_file(&path).unwrap();
    let error = report::read(folder.path()).unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
}

#[test]
fn every_number_of_routes_and_any_text_is_drawn() {
    let strange = Report {
        sections: vec![Section {
            series: vec![
                crate::sample::series("<i>&\"'", "x", &[(1.0, &[1.0])]),
                crate::sample::series("same", "x", &[(1.0, &[1e-12, 1e12]), (1e9, &[-1.0])]),
            ],
            ..crate::sample::lookup()
        }],
        ..crate::sample::report()
    };
    let page = Html::parse_document(&report::page(&strange));
    assert_eq!(page.errors, Vec::<String>::new());
    assert!(all(&page, "i, svg i").is_empty(), "text became markup");
    assert_eq!(all(&page, "svg").len(), 2);
}
