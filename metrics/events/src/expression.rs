//! Expressions over counts: arithmetic, comparisons and choices, with their derivatives.
//!
//! The grammar is that of perf's metrics (`tools/perf/util/expr.y`), from the loosest operator to the
//! closest: `a if c else b`, `|`, `^`, `&`, `<` `>`, `+` `-`, `*` `/` `%`, negation; `min(a, b)`,
//! `max(a, b)` and `d_ratio(a, b)`, which is 0 where b is. What else a value may be, the caller says:
//! names of events hold `-`, `/` and `,` themselves, and each user writes them in his own way.
//!
//! An expression is a list of nodes, each of which stands behind those that it is made of. Equal
//! parts are one node, so that an expression in which others are put in place of names does not grow
//! beyond what is different in it. Working it out needs no recursion.

use std::collections::HashMap;
use std::hash::Hash;
use thiserror::Error;

/// Most brackets in brackets.
const DEEPEST: usize = 100;

/// Why a text is no expression.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ExpressionError {
    /// Something stands in the place of a value, and is none.
    #[error("`{0}` is not a value")]
    NoValue(String),
    /// The text is not well formed.
    #[error("{0}")]
    Syntax(String),
}

/// An operator of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operator {
    Or,
    Xor,
    And,
    Less,
    Greater,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Minimum,
    Maximum,
    /// A ratio that is 0 where the divisor is.
    Ratio,
}

impl Operator {
    /// The operator that a character stands for, and how close it binds.
    fn of(c: char) -> Option<(Operator, u8)> {
        Some(match c {
            '|' => (Operator::Or, 1),
            '^' => (Operator::Xor, 2),
            '&' => (Operator::And, 3),
            '<' => (Operator::Less, 4),
            '>' => (Operator::Greater, 4),
            '+' => (Operator::Add, 5),
            '-' => (Operator::Subtract, 5),
            '*' => (Operator::Multiply, 6),
            '/' => (Operator::Divide, 6),
            '%' => (Operator::Remainder, 6),
            _ => return None,
        })
    }

    fn function(name: &str) -> Option<Operator> {
        Some(match name {
            "min" => Operator::Minimum,
            "max" => Operator::Maximum,
            "d_ratio" => Operator::Ratio,
            _ => return None,
        })
    }

    fn apply(self, a: f64, b: f64) -> f64 {
        let truth = |t: bool| f64::from(u8::from(t));
        match self {
            Operator::Or => truth(a != 0.0 || b != 0.0),
            Operator::Xor => truth((a != 0.0) != (b != 0.0)),
            Operator::And => truth(a != 0.0 && b != 0.0),
            Operator::Less => truth(a < b),
            Operator::Greater => truth(a > b),
            Operator::Add => a + b,
            Operator::Subtract => a - b,
            Operator::Multiply => a * b,
            Operator::Divide => a / b,
            // of whole numbers, as perf has it
            Operator::Remainder => a.trunc() % b.trunc(),
            Operator::Minimum => match a < b {
                true => a,
                false => b,
            },
            Operator::Maximum => match a > b {
                true => a,
                false => b,
            },
            Operator::Ratio if b == 0.0 => 0.0,
            Operator::Ratio => a / b,
        }
    }

    /// The derivatives by `a` and `b`; 0 where the result is a truth.
    fn derivatives(self, a: f64, b: f64) -> (f64, f64) {
        match self {
            Operator::Add => (1.0, 1.0),
            Operator::Subtract => (1.0, -1.0),
            Operator::Multiply => (b, a),
            Operator::Ratio if b == 0.0 => (0.0, 0.0),
            Operator::Divide | Operator::Ratio => (1.0 / b, -a / (b * b)),
            Operator::Minimum if a < b => (1.0, 0.0),
            Operator::Maximum if a > b => (1.0, 0.0),
            Operator::Minimum | Operator::Maximum => (0.0, 1.0),
            _ => (0.0, 0.0),
        }
    }
}

/// A part of an expression; operands are numbers of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Node {
    /// The bits of a number.
    Number(u64),
    /// The number of a leaf.
    Leaf(usize),
    Negate(usize),
    Binary(Operator, usize, usize),
    If {
        test: usize,
        then: usize,
        other: usize,
    },
}

impl Node {
    /// The same with other numbers for its operands.
    fn map(self, to: impl Fn(usize) -> usize) -> Node {
        match self {
            Node::Negate(a) => Node::Negate(to(a)),
            Node::Binary(o, a, b) => Node::Binary(o, to(a), to(b)),
            Node::If { test, then, other } => Node::If {
                test: to(test),
                then: to(then),
                other: to(other),
            },
            same @ (Node::Number(_) | Node::Leaf(_)) => same,
        }
    }

    fn operands(self) -> [Option<usize>; 3] {
        match self {
            Node::Number(_) | Node::Leaf(_) => [None; 3],
            Node::Negate(a) => [Some(a), None, None],
            Node::Binary(_, a, b) => [Some(a), Some(b), None],
            Node::If { test, then, other } => [Some(test), Some(then), Some(other)],
        }
    }
}

/// An expression over leaves `L`: what its values are of.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression<L> {
    leaves: Vec<L>,
    nodes: Vec<Node>,
}

/// An expression as it is made.
struct Builder<L> {
    made: Expression<L>,
    known: HashMap<Node, usize>,
    numbers: HashMap<L, usize>,
}

impl<L: Clone + Eq + Hash> Builder<L> {
    fn new() -> Builder<L> {
        Builder {
            made: Expression {
                leaves: Vec::new(),
                nodes: Vec::new(),
            },
            known: HashMap::new(),
            numbers: HashMap::new(),
        }
    }

    fn add(&mut self, node: Node) -> usize {
        let nodes = &mut self.made.nodes;
        *self.known.entry(node).or_insert_with(|| {
            nodes.push(node);
            nodes.len() - 1
        })
    }

    fn number(&mut self, x: f64) -> usize {
        self.add(Node::Number(x.to_bits()))
    }

    fn leaf(&mut self, leaf: &L) -> usize {
        let leaves = &mut self.made.leaves;
        let number = *self.numbers.entry(leaf.clone()).or_insert_with(|| {
            leaves.push(leaf.clone());
            leaves.len() - 1
        });
        self.add(Node::Leaf(number))
    }

    /// Adds what another expression has, whose leaf number `i` is `leaf(i)` here; the number of its last node.
    fn append<M>(&mut self, other: &Expression<M>, leaf: impl Fn(usize) -> L) -> usize {
        let mut at: Vec<usize> = Vec::with_capacity(other.nodes.len());
        for node in &other.nodes {
            at.push(match *node {
                Node::Leaf(i) => self.leaf(&leaf(i)),
                node => self.add(node.map(|of| at[of])),
            });
        }
        // an expression has a node
        at.last().copied().unwrap_or_default()
    }

    /// What was made, with `root` as its last node and nothing that it does not need.
    fn finish(self, root: usize) -> Expression<L> {
        let all = self.made;
        let mut needed = vec![false; all.nodes.len()];
        if let Some(last) = needed.get_mut(root) {
            *last = true;
        }
        for i in (0..all.nodes.len()).rev().filter(|i| *i <= root) {
            if needed[i] {
                let operands = all.nodes[i].operands();
                operands
                    .into_iter()
                    .flatten()
                    .for_each(|o| needed[o] = true);
            }
        }
        let mut out = Builder::new();
        let mut at = vec![0; all.nodes.len()];
        for (i, node) in all.nodes.iter().enumerate().filter(|(i, _)| needed[*i]) {
            at[i] = match *node {
                Node::Leaf(l) => out.leaf(&all.leaves[l]),
                node => out.add(node.map(|of| at[of])),
            };
        }
        out.made
    }
}

impl<L: Clone + Eq + Hash> Expression<L> {
    /// Reads an expression. `leaf` is asked wherever a value may stand: what the text begins with, and
    /// its length; `None` leaves it to numbers and functions.
    ///
    /// # Errors
    /// [`ExpressionError`], saying what is wrong and where.
    pub fn parse(
        text: &str,
        leaf: &mut dyn FnMut(&str) -> Option<(L, usize)>,
    ) -> Result<Expression<L>, ExpressionError> {
        let mut parser = Parser {
            rest: text.trim(),
            depth: 0,
            leaf,
            out: Builder::new(),
        };
        let root = parser.conditional()?;
        if parser.next().is_some() {
            return Err(parser.operator_needed());
        }
        Ok(parser.out.finish(root))
    }

    /// What its values are of, each once, in the order in which [`evaluate`](Self::evaluate) takes
    /// them.
    pub fn leaves(&self) -> &[L] {
        &self.leaves
    }

    /// The same with other expressions, or numbers, in place of leaves. What is known then is worked
    /// out, and what it makes needless is left out: the branch that is not taken, whatever is 0 and
    /// something else.
    #[must_use]
    pub fn with(&self, replace: &mut dyn FnMut(&L) -> Option<Expression<L>>) -> Expression<L> {
        let replaced: Vec<Option<Expression<L>>> = self.leaves.iter().map(replace).collect();
        let mut out = Builder::new();
        let mut at: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let new = match *node {
                Node::Leaf(l) => match &replaced[l] {
                    Some(other) => out.append(other, |i| other.leaves[i].clone()),
                    None => out.leaf(&self.leaves[l]),
                },
                node => out.simplified(node.map(|of| at[of])),
            };
            at.push(new);
        }
        let root = at.last().copied().unwrap_or_default();
        out.finish(root)
    }

    /// The same over other leaves.
    ///
    /// # Errors
    /// The first of `to`.
    pub fn map_leaves<M, E>(
        &self,
        to: &mut dyn FnMut(&L) -> Result<M, E>,
    ) -> Result<Expression<M>, E>
    where
        M: Clone + Eq + Hash,
    {
        let leaves: Vec<M> = self.leaves.iter().map(to).collect::<Result<_, E>>()?;
        // two leaves may be one now
        let mut out = Builder::new();
        let root = out.append(self, |i| leaves[i].clone());
        Ok(out.finish(root))
    }

    /// A number.
    pub fn constant(x: f64) -> Expression<L> {
        let mut out = Builder::new();
        let root = out.number(x);
        out.finish(root)
    }

    /// So many times the expression.
    #[must_use]
    pub fn times(&self, factor: f64) -> Expression<L> {
        let mut out = Builder::new();
        let of = out.append(self, |i| self.leaves[i].clone());
        let factor = out.number(factor);
        let root = out.add(Node::Binary(Operator::Multiply, of, factor));
        out.finish(root)
    }

    /// The result for `values` of its leaves, and its derivative by each of them. `None` when one is
    /// not a finite number (a division by zero), or values are missing.
    pub fn evaluate(&self, values: &[f64]) -> Option<(f64, Vec<f64>)> {
        if values.len() < self.leaves.len() {
            return None;
        }
        let mut results: Vec<f64> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            results.push(match *node {
                Node::Number(bits) => f64::from_bits(bits),
                Node::Leaf(l) => values[l],
                Node::Negate(a) => -results[a],
                Node::Binary(o, a, b) => o.apply(results[a], results[b]),
                Node::If { test, then, other } => match results[test] != 0.0 {
                    true => results[then],
                    false => results[other],
                },
            });
        }
        let value = *results.last()?;
        // how the result varies with each node, from the last one back
        let mut by = vec![0.0; self.nodes.len()];
        *by.last_mut()? = 1.0;
        let mut gradient = vec![0.0; self.leaves.len()];
        for (i, node) in self.nodes.iter().enumerate().rev() {
            let d = by[i];
            // what the result does not depend on may be no number
            if d == 0.0 {
                continue;
            }
            match *node {
                Node::Number(_) => {}
                Node::Leaf(l) => gradient[l] += d,
                Node::Negate(a) => by[a] -= d,
                Node::Binary(o, a, b) => {
                    let (by_a, by_b) = o.derivatives(results[a], results[b]);
                    by[a] += d * by_a;
                    by[b] += d * by_b;
                }
                Node::If { test, then, other } => match results[test] != 0.0 {
                    true => by[then] += d,
                    false => by[other] += d,
                },
            }
        }
        (value.is_finite() && gradient.iter().all(|d| d.is_finite())).then_some((value, gradient))
    }
}

impl<L: Clone + Eq + Hash> Builder<L> {
    fn constant(&self, i: usize) -> Option<f64> {
        match self.made.nodes.get(i)? {
            Node::Number(bits) => Some(f64::from_bits(*bits)),
            _ => None,
        }
    }

    /// Adds a node, or what it comes to where that is known.
    fn simplified(&mut self, node: Node) -> usize {
        match node {
            Node::Negate(a) => match self.constant(a) {
                Some(x) => self.number(-x),
                None => self.add(node),
            },
            Node::If { test, then, other } => match self.constant(test) {
                Some(x) if x != 0.0 => then,
                Some(_) => other,
                None if then == other => then,
                None => self.add(node),
            },
            Node::Binary(o, a, b) => {
                let known = (self.constant(a), self.constant(b));
                let is = |x: Option<f64>, zero: bool| x.is_some_and(|x| (x == 0.0) == zero);
                match (o, known) {
                    (o, (Some(a), Some(b))) => self.number(o.apply(a, b)),
                    (Operator::And, (a, b)) if is(a, true) || is(b, true) => self.number(0.0),
                    (Operator::Or, (a, b)) if is(a, false) || is(b, false) => self.number(1.0),
                    _ => self.add(node),
                }
            }
            Node::Number(_) | Node::Leaf(_) => self.add(node),
        }
    }
}

/// Length of the number at the beginning of `s`.
pub(crate) fn number(s: &str) -> usize {
    let mut end = 0;
    let mut before = ' ';
    for (i, c) in s.char_indices() {
        let sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
        if !(c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E') || sign) {
            break;
        }
        (end, before) = (i + c.len_utf8(), c);
    }
    end
}

struct Parser<'a, L> {
    rest: &'a str,
    depth: usize,
    leaf: &'a mut dyn FnMut(&str) -> Option<(L, usize)>,
    out: Builder<L>,
}

impl<L: Clone + Eq + Hash> Parser<'_, L> {
    /// The next character that is no white space.
    fn next(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// Whether this word comes next; it is taken.
    fn word(&mut self, word: &str) -> bool {
        self.next();
        let Some(after) = self.rest.strip_prefix(word) else {
            return false;
        };
        let ends = !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        if ends {
            self.rest = after;
        }
        ends
    }

    fn operator_needed(&self) -> ExpressionError {
        ExpressionError::Syntax(match self.rest.starts_with(')') {
            true => "a `)` without `(`".into(),
            false => format!("an operator must stand before `{}`", self.rest),
        })
    }

    fn deeper(&mut self) -> Result<(), ExpressionError> {
        self.depth += 1;
        match self.depth > DEEPEST {
            true => Err(ExpressionError::Syntax(format!(
                "more than {DEEPEST} brackets in brackets"
            ))),
            false => Ok(()),
        }
    }

    /// `a if c else b`, or a value without a choice.
    fn conditional(&mut self) -> Result<usize, ExpressionError> {
        self.deeper()?;
        let mut value = self.operations(0)?;
        if self.word("if") {
            let test = self.operations(0)?;
            if !self.word("else") {
                return Err(ExpressionError::Syntax("an `if` without `else`".into()));
            }
            let other = self.conditional()?;
            let then = value;
            value = self.out.add(Node::If { test, then, other });
        }
        self.depth -= 1;
        Ok(value)
    }

    /// Values with operators between them that bind closer than `loosest`.
    fn operations(&mut self, loosest: u8) -> Result<usize, ExpressionError> {
        let mut a = self.value()?;
        while let Some((operator, rank)) = self.next().and_then(Operator::of) {
            if rank <= loosest {
                break;
            }
            self.skip(1);
            let b = self.operations(rank)?;
            a = self.out.add(Node::Binary(operator, a, b));
        }
        Ok(a)
    }

    fn value(&mut self) -> Result<usize, ExpressionError> {
        let Some(c) = self.next() else {
            let text = "it ends where a value must come";
            return Err(ExpressionError::Syntax(text.into()));
        };
        match c {
            '(' => {
                self.skip(1);
                let value = self.conditional()?;
                self.closed(')')?;
                return Ok(value);
            }
            '-' => {
                self.skip(1);
                self.deeper()?;
                let of = self.value()?;
                self.depth -= 1;
                return Ok(self.out.add(Node::Negate(of)));
            }
            _ => {}
        }
        if let Some((leaf, length)) = (self.leaf)(self.rest) {
            self.skip(length);
            return Ok(self.out.leaf(&leaf));
        }
        let length = number(self.rest);
        if let Some(n) = self.rest.get(..length).and_then(|t| t.parse::<f64>().ok()) {
            if n.is_finite() {
                self.skip(length);
                return Ok(self.out.number(n));
            }
        }
        self.function()
    }

    fn function(&mut self) -> Result<usize, ExpressionError> {
        let name = self.rest.split_once('(').map(|(name, _)| name);
        let found = name.and_then(|n| Some((n.len(), Operator::function(n.trim_end())?)));
        let Some((length, operator)) = found else {
            let stop = |c: char| c.is_whitespace() || "+*()".contains(c);
            let at = self.rest.split(stop).find(|s| !s.is_empty());
            return Err(ExpressionError::NoValue(at.unwrap_or(self.rest).to_owned()));
        };
        self.skip(length + 1);
        let a = self.conditional()?;
        self.closed(',')?;
        let b = self.conditional()?;
        self.closed(')')?;
        Ok(self.out.add(Node::Binary(operator, a, b)))
    }

    /// Takes what must come next.
    fn closed(&mut self, by: char) -> Result<(), ExpressionError> {
        match self.next() {
            Some(c) if c == by => {
                self.skip(1);
                Ok(())
            }
            None => Err(ExpressionError::Syntax("a `(` without `)`".into())),
            Some(_) if by == ')' => Err(self.operator_needed()),
            Some(_) => Err(ExpressionError::Syntax(format!(
                "a `{by}` must stand before `{}`",
                self.rest
            ))),
        }
    }
}

#[cfg(test)]
#[path = "expression_tests.rs"]
mod tests;
