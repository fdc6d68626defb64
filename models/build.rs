//! Finds the crate's data files.

fn main() -> std::io::Result<()> {
    amp_shipped::toml_files("events")
}
