//! Finds the crate's data files.

fn main() -> std::io::Result<()> {
    amp_shipped::binary_files("tables", "gz")?;
    amp_shipped::binary_files("derived", "gz")
}
