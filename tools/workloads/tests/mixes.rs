//! The mixes against the scheduler's parser and the catalogue.

use amp_eval::workload::Workload;
use amp_workloads::catalogue::Catalogue;
use std::path::PathBuf;

/// The mixes of the board and of guests; those in folders are the simulator's and have no commands.
fn mixes() -> Vec<(String, Workload)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("mixes");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        all.push((name, Workload::load(&path).unwrap()));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn every_mix_is_named_after_its_file_and_declares_every_speedup() {
    let mixes = mixes();
    for wanted in [
        "juno-2h4l",
        "juno-contention",
        "juno-real",
        "juno-threads",
        "smoke",
        "x86-smoke",
    ] {
        assert!(mixes.iter().any(|(file, _)| file == wanted), "{wanted}");
    }
    for (file, mix) in mixes {
        assert_eq!(mix.name, file);
        for app in &mix.apps {
            assert!(
                app.speedup.is_some_and(|s| s >= 1.0),
                "{file}: {}",
                app.name
            );
        }
    }
}

#[test]
fn every_command_and_every_file_it_names_is_known() {
    let catalogue = Catalogue::shipped().unwrap();
    for (file, mix) in mixes() {
        for app in &mix.apps {
            let command = app.command.as_deref().unwrap();
            let needs = catalogue
                .needs([command])
                .unwrap_or_else(|e| panic!("{file}: {e}"));
            // a word that looks like a file is an input that will be made
            for word in &command[1..] {
                let extension = word.rsplit_once('.').map_or("", |(_, e)| e);
                if extension.len() == 3 && extension.chars().all(|c| c.is_ascii_lowercase()) {
                    assert!(
                        needs.inputs.contains_key(word),
                        "{file}: {}: {word}",
                        app.name
                    );
                }
            }
        }
    }
}

#[test]
fn threads_are_declared_as_the_command_says() {
    for (file, mix) in mixes() {
        for app in &mix.apps {
            let command = app.command.as_deref().unwrap();
            let threads = command
                .iter()
                .position(|w| w == "--threads")
                .map(|i| &command[i + 1]);
            let said = threads.map_or(1, |t| t.parse().unwrap());
            assert_eq!(said, app.threads, "{file}: {}", app.name);
        }
    }
}

#[test]
fn the_mix_of_real_programs_has_at_least_three() {
    let (_, mix) = mixes()
        .into_iter()
        .find(|(file, _)| file == "juno-real")
        .unwrap();
    let real = mix
        .apps
        .iter()
        .filter(|a| a.command.as_ref().unwrap()[0] != "amp-workload");
    assert!(real.count() >= 3);
}
