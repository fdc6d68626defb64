use super::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};

/// A bus of its own; ends with the test.
struct Bus {
    daemon: Child,
    address: String,
}

impl Bus {
    /// None where this machine has no `dbus-daemon`.
    fn start() -> Option<Bus> {
        let mut daemon = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--print-address"])
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut address = String::new();
        let out = daemon.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        Some(Bus { daemon, address })
    }

    fn connect(&self) -> Builder<'_> {
        Builder::address(self.address.as_str())
            .unwrap()
            .method_timeout(PATIENCE)
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

struct Profiles(&'static str);

#[zbus::interface(name = "org.freedesktop.UPower.PowerProfiles")]
impl Profiles {
    #[zbus(property)]
    fn active_profile(&self) -> &str {
        self.0
    }
}

struct Battery(bool);

#[zbus::interface(name = "org.freedesktop.UPower")]
impl Battery {
    #[zbus(property)]
    fn on_battery(&self) -> bool {
        self.0
    }
}

/// The next thing that is told and is not what was told last.
fn next(told: &Receiver<Option<Power>>, last: &mut Option<Power>) -> Option<Power> {
    loop {
        let now = told.recv_timeout(Duration::from_secs(60)).unwrap();
        if now != *last {
            *last = now;
            return now;
        }
    }
}

#[test]
fn whoever_comes_changes_or_goes_is_followed() {
    let Some(bus) = Bus::start() else {
        amp_skips::skip("no dbus-daemon on this machine");
        return;
    };
    let ours = bus.connect().build().unwrap();
    let (sender, told) = channel();
    let watching = std::thread::spawn(move || watch(&ours, |p| sender.send(p).is_ok()));
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(None));
    let mut last = None;

    // without power profiles, the cable decides
    const POWER: &str = "/org/freedesktop/UPower";
    let upower = bus.connect().serve_at(POWER, Battery(false)).unwrap();
    let upower = upower.name("org.freedesktop.UPower").unwrap();
    let upower = upower.build().unwrap();
    assert_eq!(next(&told, &mut last), Some(Power::Balanced));
    let battery = upower.object_server().interface::<_, Battery>(POWER);
    let battery = battery.unwrap();
    battery.get_mut().0 = true;
    let says = battery.get();
    zbus::block_on(says.on_battery_changed(battery.signal_emitter())).unwrap();
    drop(says);
    assert_eq!(next(&told, &mut last), Some(Power::Saver));

    // a profile is somebody's choice
    const PROFILES: &str = "/org/freedesktop/UPower/PowerProfiles";
    let ppd = bus.connect().serve_at(PROFILES, Profiles("performance"));
    let ppd = ppd.unwrap().name("org.freedesktop.UPower.PowerProfiles");
    let ppd = ppd.unwrap().build().unwrap();
    assert_eq!(next(&told, &mut last), Some(Power::Performance));
    let profiles = ppd.object_server().interface::<_, Profiles>(PROFILES);
    let profiles = profiles.unwrap();
    for (said, power) in [
        ("power-saver", Power::Saver),
        ("balanced", Power::Balanced),
        // a name that nobody knows says nothing: the cable decides
        ("turbo", Power::Saver),
        ("performance", Power::Performance),
    ] {
        profiles.get_mut().0 = said;
        let says = profiles.get();
        zbus::block_on(says.active_profile_changed(profiles.signal_emitter())).unwrap();
        drop(says);
        assert_eq!(next(&told, &mut last), Some(power), "{said}");
    }

    // who goes says nothing any more
    ppd.close().unwrap();
    assert_eq!(next(&told, &mut last), Some(Power::Saver));
    upower.close().unwrap();
    assert_eq!(next(&told, &mut last), None);

    // the bus goes
    drop(bus);
    let ended = watching.join().unwrap();
    drop(told);
    assert!(ended.is_err(), "{ended:?}");
}
