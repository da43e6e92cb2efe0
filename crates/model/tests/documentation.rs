//! The table in docs/reference/behaviors.md is the one that the descriptors of behaviors give.

use std::path::Path;

use sidestep_model::behavior::text;

#[test]
fn the_table_of_behaviors_in_the_manual_is_that_of_the_descriptors() {
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
