//! The parts of a page.

use crate::svg::escape;

const STYLE: &str = include_str!("page.css");

/// A whole page. `title` is plain text; `body` is HTML whose texts are escaped already.
pub fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{title}</title><style>\n{STYLE}</style></head>\n<body><main>{body}</main></body></html>\n"
    )
}

/// The top of a page: a title and a line below it, both plain text.
pub fn header(title: &str, subtitle: &str) -> String {
    let (title, subtitle) = (escape(title), escape(subtitle));
    format!("<header><h1>{title}</h1><p class=\"sub\">{subtitle}</p></header>\n")
}

/// A chart in a frame, with a title and a note in plain text. `chart` is HTML or SVG.
pub fn figure(title: &str, note: &str, chart: &str) -> String {
    let (title, note) = (escape(title), escape(note));
    format!("<figure><figcaption><b>{title}</b><span>{note}</span></figcaption><div class=\"scroll\">{chart}</div></figure>")
}

/// A legend: the class of each colour (see [`crate::colour`]) and what it stands for, in plain
/// text.
pub fn keys<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = "<p class=\"keys\">".to_owned();
    for (class, name) in entries {
        let name = escape(name);
        out += &format!("<span class=\"key\"><i class=\"{class}\"></i>{name}</span>");
    }
    out + "</p>"
}

/// A table of plain text.
pub fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, row: &[String]| -> String {
        row.iter()
            .map(|c| format!("<{tag}>{}</{tag}>", escape(c)))
            .collect()
    };
    let body: String = rows
        .iter()
        .map(|r| format!("<tr>{}</tr>", cells("td", r)))
        .collect();
    format!(
        "<div class=\"scroll\"><table><thead><tr>{}</tr></thead><tbody>{body}</tbody></table></div>",
        cells("th", header)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_cannot_become_markup() {
        let bad = "<script>alert(1)</script>";
        let row = [bad.to_owned()];
        let page = document(
            bad,
            &(header(bad, bad)
                + &figure(bad, bad, "")
                + &keys([("p0", bad)])
                + &table(&row, &[row.to_vec()])),
        );
        assert!(!page.contains(bad), "{page}");
        assert_eq!(page.matches("&lt;script&gt;").count(), 8, "{page}");
    }

    #[test]
    fn a_page_refers_to_nothing_outside_of_it() {
        let page = document("t", "");
        for outside in ["http:", "https:", "<script", "@import", "url(", "src="] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
