//! Writes the mixes of [PMCTrack] Tables 2, 3 and 5 for the simulator to `tools/workloads/mixes/`.
//! The same program writes the same files; a test compares them. `mixes SEED DIR` writes what
//! another draw of the programs would have given, to see how much depends on the draw.

mod synth;

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (seed, root) = match &args[..] {
        [] => (
            synth::SEED,
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/mixes"),
        ),
        [seed, dir] => (seed.parse()?, Path::new(dir).to_owned()),
        _ => return Err("usage: mixes [SEED DIR]".into()),
    };
    for platform in synth::published()?.platforms {
        let folder = root.join(&platform.name);
        std::fs::create_dir_all(&folder)?;
        for mix in &platform.mixes {
            let text = platform.render(mix, seed).ok_or_else(|| {
                format!(
                    "{}: {}: a program is not described in published.toml",
                    platform.name, mix.name
                )
            })?;
            let path = folder.join(mix.file_name());
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        println!("{}: {} mixes", platform.name, platform.mixes.len());
    }
    Ok(())
}
