//! A light check of the mixes: that what they run is known. The workload file's real parser is the scheduler's.

use amp_workloads::catalogue::Catalogue;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Every mix: file name and contents.
fn mixes() -> Vec<(String, toml::Table)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("mixes");
    let mut all: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| {
            let path = e.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (
                name,
                std::fs::read_to_string(path).unwrap().parse().unwrap(),
            )
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn every_mix_is_named_after_its_file_and_its_commands_are_known() {
    let catalogue = Catalogue::shipped().unwrap();
    let mixes = mixes();
    assert!(mixes.len() >= 6);
    for (file, mix) in mixes {
        assert_eq!(mix["name"].as_str(), Some(file.as_str()));
        let apps = mix["app"].as_array().unwrap();
        let labels: BTreeSet<_> = apps.iter().map(|a| a["name"].as_str().unwrap()).collect();
        assert_eq!(labels.len(), apps.len(), "{file}: a label twice");
        for a in apps {
            let command: Vec<String> = a["command"]
                .as_array()
                .unwrap()
                .iter()
                .map(|w| w.as_str().unwrap().to_string())
                .collect();
            let needs = catalogue.needs([command.as_slice()]);
            assert!(needs.is_ok(), "{file}: {}", needs.unwrap_err());
            if command[0] == "amp-workload" {
                let threads = command.iter().position(|w| w == "--threads");
                let said = threads.map_or("1", |i| &command[i + 1]);
                let declared = a.get("threads").map_or(1, |t| t.as_integer().unwrap());
                assert_eq!(
                    said,
                    declared.to_string(),
                    "{file}: threads of {}",
                    a["name"]
                );
            }
        }
    }
}
