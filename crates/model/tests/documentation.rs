//! Checks that the table in docs/reference/behaviors.md matches the behavior descriptors.

use std::path::Path;

use sidestep_model::behavior::text;

#[test]
fn the_table_of_behaviors_matches_the_descriptors() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/behaviors.md");
    let page = std::fs::read_to_string(page).expect("docs/reference/behaviors.md is there");
    let missing: Vec<_> = text::markdown()
        .lines()
        .filter(|line| !page.contains(*line))
        .map(String::from)
        .collect();
    assert!(
        missing.is_empty(),
        "docs/reference/behaviors.md lacks:\n{}",
        missing.join("\n")
    );
}
