//! How it looks: a line of sums, the list, the chosen one's graphs and events, a line of keys. What
//! does not fit is left out from below; the list stays.

use super::history::{History, Series};
use super::model::{Mode, Model, Row};
use crate::escape::{command, escape};
use crate::out::colour::Paint;
use crate::time::{age, now_ms};
use crate::verb::{ls, stats};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Sparkline, Table, TableState};
use wire::api::SessionEvent;

/// Below this the list alone is shown.
const ROWS_FOR_GRAPHS: u16 = 14;
const GRAPHS_ROWS: u16 = 7;
const EVENTS_ROWS: u16 = 5;
/// What is not counted here.
const ABSENT: &str = "-";

pub(super) fn all(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    let graphs = if area.height >= ROWS_FOR_GRAPHS { GRAPHS_ROWS } else { 0 };
    let events = if area.height >= ROWS_FOR_GRAPHS + EVENTS_ROWS { EVENTS_ROWS } else { 0 };
    let parts = [
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(graphs),
        Constraint::Length(events),
        Constraint::Length(1),
    ];
    let [head, list, graphs, events, foot] = Layout::vertical(parts).areas(area);
    frame.render_widget(sums(model), head);
    rows(frame, list, model);
    if let Some(row) = model.chosen() {
        if let Some(history) = model.history(row) {
            draw_graphs(frame, graphs, row, history);
        }
        draw_events(frame, events, model.events());
    }
    frame.render_widget(keys(model), foot);
}

fn style(paint: Paint) -> Style {
    if !super::colours() {
        return match paint {
            Paint::Head | Paint::Bad => Style::new().add_modifier(Modifier::BOLD),
            Paint::Good | Paint::Warn | Paint::Back => Style::new(),
        };
    }
    match paint {
        Paint::Good => Style::new().fg(Color::Green),
        Paint::Warn => Style::new().fg(Color::Yellow),
        Paint::Bad => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Paint::Head => Style::new().add_modifier(Modifier::BOLD),
        Paint::Back => Style::new().add_modifier(Modifier::DIM),
    }
}

fn sums(model: &Model) -> Line<'static> {
    let (all, running, paused) = model.counts();
    let mut text = format!("  {all} living, {running} running, {paused} paused");
    if !model.filter.is_empty() {
        text.push_str(&format!("; /{}", escape(&model.filter)));
    }
    text.push_str(&format!("; by {}", model.order.word()));
    Line::from(vec![Span::styled("mews top", style(Paint::Head)), Span::raw(text)])
}

fn rows(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let shown = model.rows();
    if shown.is_empty() {
        let words = if model.filter.is_empty() {
            "nothing is running; in another terminal: mews run -- CMD"
        } else {
            "nothing fits the filter; esc shows all"
        };
        frame.render_widget(Paragraph::new(words), area);
        return;
    }
    let fits = |column: &&Column| area.width >= column.from;
    let columns: Vec<&Column> = COLUMNS.iter().filter(fits).collect();
    let now_ms = now_ms();
    let lines = shown.iter().map(|row| {
        let cells = columns.iter().map(|column| cell(column.of, row, model.history(row), now_ms));
        ratatui::widgets::Row::new(cells.collect::<Vec<_>>())
    });
    let head = columns.iter().map(|column| column.head).collect::<Vec<_>>();
    let widths: Vec<Constraint> = columns.iter().map(|column| column.width).collect();
    let head = ratatui::widgets::Row::new(head).style(style(Paint::Head));
    let table = Table::new(lines, widths)
        .header(head)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(model.chosen_at());
    frame.render_stateful_widget(table, area, &mut state);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Name,
    State,
    Cpu,
    Memory,
    Pids,
    Read,
    Written,
    Output,
    Age,
    Command,
}

struct Column {
    of: Of,
    head: &'static str,
    width: Constraint,
    /// On terminals at least so wide.
    from: u16,
}

const fn column(of: Of, head: &'static str, width: Constraint, from: u16) -> Column {
    Column { of, head, width, from }
}

const COLUMNS: [Column; 10] = [
    column(Of::Name, "NAME", Constraint::Fill(2), 0),
    column(Of::State, "STATE", Constraint::Length(11), 24),
    column(Of::Cpu, "CPU", Constraint::Length(6), 38),
    column(Of::Memory, "MEMORY", Constraint::Length(8), 46),
    column(Of::Pids, "PIDS", Constraint::Length(5), 60),
    column(Of::Read, "READ/s", Constraint::Length(8), 100),
    column(Of::Written, "WRITE/s", Constraint::Length(8), 100),
    column(Of::Output, "OUTPUT", Constraint::Length(8), 110),
    column(Of::Age, "AGE", Constraint::Length(5), 54),
    column(Of::Command, "COMMAND", Constraint::Fill(3), 64),
];

fn cell(of: Of, row: &Row, history: Option<&History>, now_ms: i64) -> Cell<'static> {
    let counted = |value: fn(&History) -> Option<String>| {
        let known = history.filter(|_known| row.is_counted).and_then(value);
        Cell::from(known.unwrap_or_else(|| ABSENT.to_owned()))
    };
    match of {
        Of::Name => Cell::from(escape(&row.session.name)),
        Of::State => {
            let state = ls::state(&row.session);
            Cell::from(state).style(ls::paint(state).map(style).unwrap_or_default())
        }
        Of::Cpu => counted(|one| one.cpu.last().map(|cpu| format!("{cpu}%"))),
        Of::Memory => counted(|one| one.memory.last().map(stats::bytes)),
        Of::Pids => counted(|one| one.last()?.pids.as_ref().map(|pids| pids.current.to_string())),
        Of::Read => counted(|one| one.read.last().map(stats::bytes)),
        Of::Written => counted(|one| one.written.last().map(stats::bytes)),
        Of::Output => {
            counted(|one| one.last()?.output.as_ref().map(|output| stats::bytes(output.bytes)))
        }
        Of::Age => Cell::from(age(now_ms - row.session.created_at_ms)),
        Of::Command => {
            let argv = row.session.runs.last().map(|run| command(&run.argv));
            Cell::from(argv.unwrap_or_default())
        }
    }
}

/// Use on the left, pressure on the right.
fn draw_graphs(frame: &mut Frame<'_>, area: Rect, row: &Row, history: &History) {
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(2);
    let [left, right] = halves.areas(area);
    let title = format!(" {} ", escape(&row.session.name));
    let block = Block::new().borders(Borders::TOP).title(title);
    let inside = block.inner(left);
    frame.render_widget(block, left);
    let cpu = history.cpu.last().map_or_else(|| "cpu".to_owned(), |cpu| format!("cpu {cpu}%"));
    let memory = history.last().and_then(|last| last.memory.as_ref());
    let most = memory.and_then(|memory| memory.limit_bytes);
    let memory = history.memory.last().map_or_else(
        || "memory".to_owned(),
        |now| match most {
            Some(most) => format!("memory {} of {}", stats::bytes(now), stats::bytes(most)),
            None => format!("memory {}", stats::bytes(now)),
        },
    );
    let limit = history.last().and_then(|last| last.cpu.as_ref()?.limit_milli);
    let [above, below] = Layout::vertical([Constraint::Fill(1); 2]).areas(inside);
    let cpus = limit.map(|milli| milli / 10).unwrap_or(100);
    graph(frame, above, &cpu, &history.cpu, Scale::AtLeast(cpus), Paint::Good);
    graph(frame, below, &memory, &history.memory, Scale::of(most), Paint::Good);

    let block = Block::new().borders(Borders::TOP).title(" waited for, of 10 s ");
    let inside = block.inner(right);
    frame.render_widget(block, right);
    let thirds = Layout::vertical([Constraint::Fill(1); 3]).areas::<3>(inside);
    let all = [
        ("cpu", &history.cpu_pressure),
        ("memory", &history.memory_pressure),
        ("io", &history.io_pressure),
    ];
    for (area, (name, series)) in thirds.into_iter().zip(all) {
        let now = series.last().map_or_else(
            || format!("{name} {ABSENT}"),
            |now| format!("{name} {}.{:02}%", now / 100, now % 100),
        );
        graph(frame, area, &now, series, Scale::AtLeast(1000), Paint::Warn);
    }
}

/// What the top of a graph is.
#[derive(Clone, Copy)]
enum Scale {
    /// This, or the highest value if that is more.
    AtLeast(u64),
    Exactly(u64),
    /// The highest value.
    Own,
}

impl Scale {
    fn of(limit: Option<u64>) -> Self {
        limit.map_or(Self::Own, Self::Exactly)
    }
}

const LABEL_COLUMNS: u16 = 22;

fn graph(
    frame: &mut Frame<'_>,
    area: Rect,
    label: &str,
    series: &Series,
    scale: Scale,
    paint: Paint,
) {
    let parts = Layout::horizontal([Constraint::Length(LABEL_COLUMNS), Constraint::Fill(1)]);
    let [words, lines] = parts.areas(area);
    frame.render_widget(Paragraph::new(label.to_owned()), words);
    let data = series.shown(usize::from(lines.width));
    let most = data.iter().copied().max().unwrap_or(0);
    let top = match scale {
        Scale::AtLeast(least) => most.max(least),
        Scale::Exactly(top) => top,
        Scale::Own => most,
    };
    frame
        .render_widget(Sparkline::default().data(&data).max(top.max(1)).style(style(paint)), lines);
}

/// The newest at the bottom.
fn draw_events<'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    events: impl DoubleEndedIterator<Item = &'a SessionEvent>,
) {
    let block = Block::new().borders(Borders::TOP).title(" events ");
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let now_ms = now_ms();
    let mut lines: Vec<Line<'_>> = events
        .rev()
        .take(usize::from(inside.height))
        .map(|event| {
            let ago = age(now_ms - event.at_ms);
            let data = if event.data.is_null() { String::new() } else { event.data.to_string() };
            Line::from(format!("{ago:>4}  {:<18} {}", escape(&event.kind), escape(&data)))
        })
        .collect();
    lines.reverse();
    frame.render_widget(Paragraph::new(lines), inside);
}

fn keys(model: &Model) -> Line<'static> {
    match &model.mode {
        Mode::Kill { name, .. } => {
            let question = format!("kill {} with all that runs in it? [y/N]", escape(name));
            Line::styled(question, style(Paint::Bad))
        }
        Mode::Filter(_before) => {
            Line::raw(format!("/{}_  enter keeps it, esc takes it back", escape(&model.filter)))
        }
        Mode::List if !model.told.is_empty() => {
            Line::styled(model.told.clone(), style(Paint::Warn))
        }
        Mode::List => {
            let words = "enter attach  p pause/resume  k kill  / filter  s sort  q quit";
            Line::styled(words, style(Paint::Back))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Key;
    use super::super::model::tests::{found, in_order};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use wire::api::SessionState;

    fn drawn(model: &Model, cols: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(cols, rows)).unwrap();
        terminal.draw(|frame| all(frame, model)).unwrap();
        terminal.backend().to_string()
    }

    fn model() -> Model {
        let mut model = Model::new(String::new());
        let evil = found("evil\x1b[2J", SessionState::Running, 3 << 19);
        model.learn(in_order(evil, found("two", SessionState::Paused, 1 << 30)));
        model
    }

    #[test]
    fn the_list_says_name_state_and_use_and_is_harmless() {
        let shown = drawn(&model(), 120, 30);
        for words in ["2 living, 1 running, 1 paused", "1.5M", "paused", "WRITE/s", "q quit"] {
            assert!(shown.contains(words), "no {words:?} in\n{shown}");
        }
        assert!(shown.contains("evil\\u{1b}[2J") && !shown.contains('\x1b'), "{shown}");
        assert!(shown.contains("events") && shown.contains("memory -"), "{shown}");
    }

    #[test]
    fn any_size_is_drawn_and_the_list_stays() {
        for (cols, rows) in [(1, 1), (10, 3), (20, 5), (40, 13), (79, 14), (300, 100)] {
            let shown = drawn(&model(), cols, rows);
            let has_room = cols >= 10 && rows >= 5;
            assert!(!has_room || shown.contains("two"), "{cols}x{rows}\n{shown}");
        }
    }

    #[test]
    fn the_last_line_is_the_question_the_filter_or_what_came_of_it() {
        let mut model = model();
        model.press(Key::Down);
        model.press(Key::Char('k'));
        assert!(drawn(&model, 80, 24).contains("kill two with all that runs in it? [y/N]"));
        model.press(Key::Char('n'));
        assert!(drawn(&model, 80, 24).contains("not killed"));
        model.press(Key::Char('/'));
        model.press(Key::Char('z'));
        let shown = drawn(&model, 80, 24);
        assert!(shown.contains("/z_") && shown.contains("nothing fits the filter"), "{shown}");
    }
}
