//! Flattened device trees (Devicetree Specification 0.4, chapter 5), read into a tree and written
//! back.

const MAGIC: u32 = 0xd00d_feed;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROP: u32 = 3;
const NOP: u32 = 4;
const END: u32 = 9;
/// Deeper than any tree QEMU makes: damaged input must not exhaust the stack.
const MAX_DEPTH: usize = 32;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Name with unit address; empty for the root.
    pub name: String,
    /// Properties in order.
    pub properties: Vec<(String, Vec<u8>)>,
    /// Child nodes in order.
    pub children: Vec<Node>,
}

impl Node {
    /// An empty node.
    pub fn new(name: impl Into<String>) -> Node {
        Node {
            name: name.into(),
            ..Node::default()
        }
    }

    /// The raw value of a property.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.properties
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_slice())
    }

    /// Sets a raw value.
    pub fn set(&mut self, name: &str, value: Vec<u8>) -> &mut Node {
        match self.properties.iter_mut().find(|(n, _)| n == name) {
            Some((_, v)) => *v = value,
            None => self.properties.push((name.into(), value)),
        }
        self
    }

    /// Sets a string.
    pub fn set_str(&mut self, name: &str, value: &str) -> &mut Node {
        let mut v = value.as_bytes().to_vec();
        v.push(0);
        self.set(name, v)
    }

    /// Sets a list of 32-bit cells.
    pub fn set_cells(&mut self, name: &str, cells: &[u32]) -> &mut Node {
        self.set(name, cells.iter().flat_map(|c| c.to_be_bytes()).collect())
    }

    /// A child by its name.
    pub fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|c| c.name == name)
    }

    /// The largest phandle in the tree, 0 when there is none.
    pub fn max_phandle(&self) -> u32 {
        let own = self.get("phandle").and_then(cell).unwrap_or(0);
        self.children
            .iter()
            .map(Node::max_phandle)
            .fold(own, u32::max)
    }
}

/// The first cell of a value.
pub fn cell(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(value.get(..4)?.try_into().ok()?))
}

struct Reader<'a> {
    structure: &'a [u8],
    strings: &'a [u8],
    at: usize,
}

/// Reads a flattened tree.
///
/// # Errors
/// When it is damaged; the text says where.
pub fn parse(d: &[u8]) -> Result<Node, String> {
    let head = |i: usize| d.get(4 * i..).and_then(cell).ok_or("cut off in its header");
    if head(0)? != MAGIC {
        return Err("not a device tree: wrong magic".into());
    }
    let block = |off: u32, len: u32| {
        let start = off as usize;
        d.get(start..start.checked_add(len as usize)?)
    };
    let structure = block(head(2)?, head(9)?).ok_or("structure block outside of it")?;
    let strings = block(head(3)?, head(8)?).ok_or("strings block outside of it")?;
    let mut r = Reader {
        structure,
        strings,
        at: 0,
    };
    match r.token()? {
        BEGIN_NODE => r.node(0),
        t => Err(format!("token {t} where the root should begin")),
    }
}

impl Reader<'_> {
    fn token(&mut self) -> Result<u32, String> {
        loop {
            let t = self.structure.get(self.at..).and_then(cell);
            let t = t.ok_or_else(|| format!("cut off at byte {}", self.at))?;
            self.at += 4;
            if t != NOP {
                return Ok(t);
            }
        }
    }

    fn text(from: &[u8]) -> Result<&str, String> {
        let end = from
            .iter()
            .position(|b| *b == 0)
            .ok_or("a name without its end")?;
        std::str::from_utf8(&from[..end]).map_err(|_| "a name that is not text".into())
    }

    fn node(&mut self, depth: usize) -> Result<Node, String> {
        if depth > MAX_DEPTH {
            return Err("nested too deep".into());
        }
        let name = Self::text(&self.structure[self.at..])?;
        let mut node = Node::new(name);
        self.at = (self.at + name.len() + 1).next_multiple_of(4);
        loop {
            match self.token()? {
                PROP => {
                    let (len, name_at) = (self.token_raw()? as usize, self.token_raw()? as usize);
                    let end = self.at.checked_add(len).ok_or("a value too long")?;
                    let value = self.structure.get(self.at..end).ok_or("a value cut off")?;
                    let name = Self::text(self.strings.get(name_at..).unwrap_or_default())?;
                    node.properties.push((name.into(), value.to_vec()));
                    self.at = end.next_multiple_of(4);
                }
                BEGIN_NODE => node.children.push(self.node(depth + 1)?),
                END_NODE => return Ok(node),
                t => return Err(format!("token {t} in node `{}`", node.name)),
            }
        }
    }

    /// A number in the structure block (may have the value of a NOP).
    fn token_raw(&mut self) -> Result<u32, String> {
        let v = self
            .structure
            .get(self.at..)
            .and_then(cell)
            .ok_or("cut off in a property")?;
        self.at += 4;
        Ok(v)
    }
}

/// Writes a tree as version 17, without memory reservations.
pub fn write(root: &Node) -> Vec<u8> {
    let (mut structure, mut strings) = (Vec::new(), Vec::new());
    emit(root, &mut structure, &mut strings);
    structure.extend(END.to_be_bytes());
    let reserved_at = 40u32;
    let structure_at = reserved_at + 16;
    let strings_at = structure_at + structure.len() as u32;
    let total = strings_at + strings.len() as u32;
    let head = [
        MAGIC,
        total,
        structure_at,
        strings_at,
        reserved_at,
        17,
        16,
        0,
        strings.len() as u32,
        structure.len() as u32,
    ];
    let mut out: Vec<u8> = head.iter().flat_map(|w| w.to_be_bytes()).collect();
    out.extend([0; 16]);
    out.extend(structure);
    out.extend(strings);
    out
}

fn emit(node: &Node, structure: &mut Vec<u8>, strings: &mut Vec<u8>) {
    let pad = |s: &mut Vec<u8>| s.resize(s.len().next_multiple_of(4), 0);
    structure.extend(BEGIN_NODE.to_be_bytes());
    structure.extend(node.name.as_bytes());
    structure.push(0);
    pad(structure);
    for (name, value) in &node.properties {
        structure.extend(PROP.to_be_bytes());
        structure.extend((value.len() as u32).to_be_bytes());
        structure.extend(intern(name, strings).to_be_bytes());
        structure.extend(value);
        pad(structure);
    }
    for child in &node.children {
        emit(child, structure, strings);
    }
    structure.extend(END_NODE.to_be_bytes());
}

fn intern(name: &str, strings: &mut Vec<u8>) -> u32 {
    let mut at = 0;
    while at < strings.len() {
        let end = strings[at..]
            .iter()
            .position(|b| *b == 0)
            .map_or(strings.len(), |i| at + i);
        if &strings[at..end] == name.as_bytes() {
            return at as u32;
        }
        at = end + 1;
    }
    strings.extend(name.as_bytes());
    strings.push(0);
    at as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node() -> impl Strategy<Value = Node> {
        let properties = prop::collection::vec(
            ("[a-z#,-]{1,9}", prop::collection::vec(any::<u8>(), 0..9)),
            0..4,
        );
        let leaf = ("[a-z@0-9]{1,9}", properties.clone()).prop_map(|(name, properties)| Node {
            name,
            properties,
            children: vec![],
        });
        leaf.prop_recursive(4, 24, 4, move |inner| {
            (
                "[a-z@0-9]{1,9}",
                properties.clone(),
                prop::collection::vec(inner, 0..4),
            )
                .prop_map(|(name, properties, children)| Node {
                    name,
                    properties,
                    children,
                })
        })
    }

    proptest! {
        #[test]
        fn written_trees_read_back(n in node()) {
            prop_assert_eq!(parse(&write(&n)), Ok(n));
        }

        #[test]
        fn damage_is_an_error_or_another_tree_never_a_panic(n in node(), at in any::<usize>(), b in any::<u8>()) {
            let mut d = write(&n);
            let i = at % d.len();
            d[i] = b;
            let _ = parse(&d);
            let _ = parse(&d[..i]);
        }
    }
}
