//! Sets the version that `sidestep --version` prints.

#[path = "build/version.rs"]
mod version;

fn main() {
    version::set(&["..", "../../datapath"]);
}
