//! The commands on images that are not mounted: what they say, and with which status.

mod copies;
mod doctor;
mod info;
mod made;
mod outside;
mod rings;
mod scratch;
mod strangers;
mod support;
