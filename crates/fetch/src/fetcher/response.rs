//! Reading one response, handing its records on as they arrive.

use std::time::Duration;

use tarn_client::{ClientError, Connection};
use tarn_wire::ErrorCode;
use tarn_wire::fetch_stream::{FetchEvent, FetchHeader, FetchPartitionEnd, FetchPartitionStart};
use tokio::time::Instant;

use super::{Fetcher, Result};
use crate::pipelining::Coming;
use crate::sizing::{Answer, Sizing};
use crate::{AfterError, Asked, FetchPolicy, FetchedPartition, Finished};

/// Sessions refused in a row before the connection is given up.
const SESSION_LOSSES_MAX: u32 = 5;
/// Pause before the next session, when the one before was refused too.
const SESSION_LOST_WAIT: Duration = Duration::from_millis(100);

/// The response being read.
pub(super) struct ResponseState {
    begun: Instant,
    number: u64,
    /// By partition the last response that spoke of it.
    answered_in: Vec<u64>,
}

impl ResponseState {
    pub(super) fn new(now: Instant) -> ResponseState {
        ResponseState {
            begun: now,
            number: 0,
            answered_in: Vec::new(),
        }
    }

    /// A new assignment of so many partitions: no response spoke of them yet.
    pub(super) fn forget(&mut self, partitions: usize) {
        self.answered_in = vec![0; partitions];
    }

    fn begin(&mut self) {
        self.begun = Instant::now();
        self.number += 1;
    }

    /// False when this response spoke of the partition before.
    fn is_first(&mut self, index: usize) -> bool {
        std::mem::replace(&mut self.answered_in[index], self.number) != self.number
    }
}

/// A partition's part of the response.
struct Part<R> {
    index: usize,
    code: ErrorCode,
    /// `None` = after an error.
    response: Option<R>,
}

impl<P: FetchPolicy> Fetcher<P> {
    /// Takes one response; `pipelined` = its request went out while the one before it arrived.
    pub(super) async fn read(
        &mut self,
        connection: &mut Connection,
        first: FetchEvent,
        pipelined: bool,
        negotiated: i16,
    ) -> Result<(), P> {
        let limits = self.limits();
        let mut part: Option<Part<P::Response>> = None;
        let mut event = first;
        self.response.begin();
        let begun = self.response.begun;
        // What goes out meanwhile is about the next response.
        let waited = begun.saturating_duration_since(self.sent.at);
        let asked_bytes = self.sent.bytes_max;
        let mut bytes = 0;
        loop {
            match event {
                FetchEvent::Header(header) => {
                    self.held_back.begin(header.throttle_time_ms);
                    self.header(connection, &header).await?;
                }
                FetchEvent::Topic { .. } => {}
                FetchEvent::PartitionStart(start) => part = self.begin(start),
                FetchEvent::Records(piece) => {
                    bytes += piece.len() as u64;
                    if let Some(part) = &mut part
                        && let Some(response) = &mut part.response
                    {
                        self.policy.take(response, &piece);
                        let coming = Coming {
                            receiving: begun.elapsed(),
                            bytes,
                            left: connection.fetch_bytes_to_come(),
                        };
                        if self.may_pipeline(part.index)
                            && self.pipelining.is_due(coming)
                            && let Some(estimate) = self.policy.estimate(response)
                        {
                            self.send_next(connection, part.index, estimate, negotiated)
                                .await?;
                        }
                    }
                }
                FetchEvent::PartitionEnd(tags) => {
                    if let Some(part) = part.take() {
                        self.finish(part, &tags);
                    }
                }
                FetchEvent::End { node_endpoints } => {
                    for endpoint in &node_endpoints {
                        self.policy.learn_broker(endpoint);
                    }
                    let answer = Answer {
                        asked_bytes,
                        waited,
                        receiving: begun.elapsed(),
                        bytes,
                    };
                    self.learn(answer, pipelined);
                    return Ok(());
                }
            }
            event = connection.next_fetch_event(limits).await?;
        }
    }

    /// Learns from a complete response how large and how early the next Fetch should be.
    fn learn(&mut self, answer: Answer, pipelined: bool) {
        let is_news = self
            .held_back
            .end(answer.waited + answer.receiving, answer.bytes);
        self.scan.has_complete_response |= is_news;
        if is_news {
            let waited = (!pipelined).then_some(answer.waited);
            self.pipelining.answered(waited, Sizing::is_full(answer));
            self.sizing.answered(answer);
        }
    }

    /// Whether a Fetch for this partition may go out now; what only a connection without open
    /// requests can ask goes first.
    fn may_pipeline(&self, index: usize) -> bool {
        let is_free = !self.sent.is_pipelined
            && !self.bounds.has_starts
            && self.bounds.out_of_range.is_empty();
        let has_id = self.assignment.partitions[index].topic_id().is_some();
        is_free && has_id && self.lagging.is_only(index) && self.pipelining.estimates()
    }

    async fn header(&mut self, connection: &Connection, header: &FetchHeader) -> Result<(), P> {
        match ErrorCode(header.error_code) {
            ErrorCode::NONE => {
                self.told.session.answered(header.session_id);
                self.told.losses = 0;
                self.answered = true;
                self.policy.answered();
                Ok(())
            }
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND
            | ErrorCode::INVALID_FETCH_SESSION_EPOCH
            | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
            | ErrorCode::INCONSISTENT_TOPIC_ID
            | ErrorCode::UNKNOWN_TOPIC_ID
                if self.told.losses < SESSION_LOSSES_MAX =>
            {
                self.told.session.lost();
                self.told.losses += 1;
                // Twice in a row is not an eviction any more.
                if self.told.losses > 1 {
                    tokio::time::sleep(SESSION_LOST_WAIT).await;
                }
                Ok(())
            }
            code => Err(ClientError::refused(connection.peer(), "Fetch", code.0, None).into()),
        }
    }

    /// A partition's part of the response begins; `None` when it is nothing we asked for.
    fn begin(&mut self, start: FetchPartitionStart) -> Option<Part<P::Response>> {
        let index = self.assignment.find(&start)?;
        let known = self.told.session.asked(index);
        let offset = if self.sent.estimated == Some(index) {
            self.sent.estimated = None;
            None
        } else {
            Some(known?.fetch_offset)
        };
        let epoch = known.map(|ask| ask.current_leader_epoch);
        let asked = Asked {
            offset,
            fenced_with: epoch.filter(|&epoch| self.sent.fences && epoch >= 0),
            begun: self.response.begun,
        };
        if !self.response.is_first(index) {
            return None;
        }
        self.told.touched.push(index);
        let code = ErrorCode(start.error_code);
        let response = if code == ErrorCode::NONE {
            let partition = &self.assignment.partitions[index];
            Some(self.policy.begin(partition, start, asked)?)
        } else {
            None
        };
        Some(Part {
            index,
            code,
            response,
        })
    }

    fn finish(&mut self, part: Part<P::Response>, tags: &FetchPartitionEnd) {
        let index = part.index;
        let partition = self.assignment.partitions[index].clone();
        let Some(response) = part.response else {
            self.held_back.moved();
            self.name_again(index);
            if self.policy.error(&partition, part.code, tags) == AfterError::AskBounds {
                self.bounds.out_of_range.push(index);
            }
            return;
        };
        if let Some(diverging) = tags.diverging_epoch {
            self.held_back.moved();
            self.name_again(index);
            self.policy.diverged(&partition, diverging);
            return;
        }
        match self.policy.finish(&partition, response) {
            Finished::Good {
                progress,
                appended,
                lagging,
                left_a_gap,
            } => {
                if appended {
                    self.held_back.moved();
                }
                if left_a_gap {
                    self.pipelining.left_a_gap();
                }
                self.lagging.set(index, lagging);
                self.progress.push((partition, progress));
            }
            Finished::Unused => {}
            Finished::Failed => self.name_again(index),
        }
    }

    fn name_again(&mut self, index: usize) {
        self.told.session.name_again(index, &mut self.told.wants);
    }
}
