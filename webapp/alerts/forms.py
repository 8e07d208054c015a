"""The form of a new webhook. It validates shape; the service judges the address."""

from __future__ import annotations

from django import forms

from webapp.alerts.models import Kind


class WebhookForm(forms.Form):
    """Name, address, and which alerts."""

    name = forms.CharField(max_length=80, label="Name", help_text="Who receives it.")
    url = forms.CharField(max_length=500, label="Address", help_text="https://… Alerts are sent to it as signed JSON.")
    kinds = forms.MultipleChoiceField(
        required=False, label="Alerts", choices=Kind.choices, widget=forms.CheckboxSelectMultiple,
        help_text="None ticked: all of them.",
    )  # fmt: skip
