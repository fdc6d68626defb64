//! What the system bus says of power: power-profiles-daemon, or who has its name (tuned-ppd), and UPower.

use super::Power;
use std::time::Duration;
use zbus::blocking::connection::Builder;
use zbus::blocking::fdo::{DBusProxy, PropertiesProxy};
use zbus::blocking::{Connection, MessageIterator};
use zbus::message::Type;
use zbus::names::{BusName, InterfaceName};
use zbus::zvariant::Value;
use zbus::MatchRule;

/// The longest that a service may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who says what power is set to.
struct Source {
    name: &'static str,
    path: &'static str,
    interface: &'static str,
    property: &'static str,
    read: fn(&Value<'_>) -> Option<Power>,
}

/// Those there may be; whoever comes first decides. A power profile is somebody's choice, which a cable is not.
const SOURCES: [Source; 3] = [
    Source {
        name: "org.freedesktop.UPower.PowerProfiles",
        path: "/org/freedesktop/UPower/PowerProfiles",
        interface: "org.freedesktop.UPower.PowerProfiles",
        property: "ActiveProfile",
        read: profile,
    },
    // power-profiles-daemon before 0.20
    Source {
        name: "net.hadess.PowerProfiles",
        path: "/net/hadess/PowerProfiles",
        interface: "net.hadess.PowerProfiles",
        property: "ActiveProfile",
        read: profile,
    },
    Source {
        name: "org.freedesktop.UPower",
        path: "/org/freedesktop/UPower",
        interface: "org.freedesktop.UPower",
        property: "OnBattery",
        read: battery,
    },
];

fn profile(said: &Value<'_>) -> Option<Power> {
    match said {
        Value::Str(s) => match s.as_str() {
            "power-saver" => Some(Power::Saver),
            "balanced" => Some(Power::Balanced),
            "performance" => Some(Power::Performance),
            _ => None,
        },
        _ => None,
    }
}

fn battery(said: &Value<'_>) -> Option<Power> {
    match said {
        Value::Bool(true) => Some(Power::Saver),
        Value::Bool(false) => Some(Power::Balanced),
        _ => None,
    }
}

/// The system bus.
///
/// # Errors
/// When there is none, or it does not let us in.
pub(super) fn system() -> zbus::Result<Connection> {
    Builder::system()?.method_timeout(PATIENCE).build()
}

/// Tells what power is set to, now and whenever that may have changed, until `tell` says that nobody listens. `None` where
/// nobody says it.
///
/// # Errors
/// When the bus refuses, or goes away.
pub(super) fn watch(
    bus: &Connection,
    mut tell: impl FnMut(Option<Power>) -> bool,
) -> zbus::Result<()> {
    // before anything is asked for, so that no change is missed
    let messages = MessageIterator::from(bus);
    let dbus = DBusProxy::new(bus)?;
    for source in &SOURCES {
        let signals = || MatchRule::builder().msg_type(Type::Signal);
        let changed = signals()
            .sender(source.name)?
            .path(source.path)?
            .interface("org.freedesktop.DBus.Properties")?
            .member("PropertiesChanged")?;
        dbus.add_match_rule(changed.build())?;
        let comes_or_goes = signals()
            .sender("org.freedesktop.DBus")?
            .interface("org.freedesktop.DBus")?
            .member("NameOwnerChanged")?
            .add_arg(source.name)?;
        dbus.add_match_rule(comes_or_goes.build())?;
    }
    if !tell(present(bus, &dbus)) {
        return Ok(());
    }
    for message in messages {
        let message = message?;
        let header = message.header();
        let member = header.member().map(|m| m.as_str());
        if matches!(member, Some("PropertiesChanged" | "NameOwnerChanged"))
            && !tell(present(bus, &dbus))
        {
            return Ok(());
        }
    }
    Ok(())
}

/// What power is set to. A service that is not there is not started for it.
fn present(bus: &Connection, dbus: &DBusProxy<'_>) -> Option<Power> {
    SOURCES.iter().find_map(|source| {
        let there = dbus.name_has_owner(BusName::try_from(source.name).ok()?);
        if !there.ok()? {
            return None;
        }
        let of = PropertiesProxy::builder(bus)
            .destination(source.name)
            .and_then(|b| b.path(source.path))
            .and_then(|b| b.build());
        let interface = InterfaceName::try_from(source.interface).ok()?;
        let said = of.ok()?.get(interface, source.property).ok()?;
        (source.read)(&said)
    })
}

#[cfg(test)]
mod tests;
